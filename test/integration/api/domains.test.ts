import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { systemClock } from '../../../infra/clock.ts';
import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import { createLogger } from '../../../infra/log.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { catalogue } from '../../../projections/catalogue/projector.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { rebuild } from '../../../projections/engine/rebuild/rebuild.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { aDomain, importRecords } from '../../support/catalogue.ts';
import { openApiChecker } from '../../support/openapi.ts';
import type { Complaints } from '../../support/openapi.ts';

/** Domains through HTTP, on the real log, projector and stores. */

const DOMAINS = '/api/dapps/domains/';
const REPORTS = '/api/dapps/domain-reports/';

let world: ApiWorld;
let complaints: Complaints;
let apiKey: string;

beforeAll(async () => {
  // A busy machine is no reason for a 503.
  world = await apiWorld({ COMMAND_TIMEOUT_MS: '30000' });
  complaints = await openApiChecker(world);
  apiKey = await keyOf('alice');
});
afterAll(async () => await world?.close());

async function keyOf(username: string): Promise<string> {
  const { token } = await world.makeUser(username);
  const json = { name: username };
  return (await world.call('POST', '/api/users/auth/create-api-key/', { token, json })).json.key;
}

/** A call whose answer must be as the OpenAPI document says. */
async function call(method: string, path: string, json?: unknown, key = apiKey): Promise<Answer> {
  const answer = await world.call(method, path, {
    headers: { 'api-key': key },
    ...(json === undefined ? {} : { json }),
  });
  expect(complaints(method, path, answer)).toEqual([]);
  return answer;
}
const get = async (path: string): Promise<Answer['json']> => (await call('GET', path)).json;
const check = async (domain: string): Promise<Answer['json']> =>
  await get(`/api/dapps/domain-check/?domain=${encodeURIComponent(domain)}`);
const listed = async (...records: readonly ReturnType<typeof aDomain>[]): Promise<void> => {
  await importRecords(world, { domains: [...records] });
};
const approve = (reportId: number, overridesWhitelist: boolean) =>
  world.commands.submit({
    type: 'report.review',
    actor: 'operator',
    body: {
      decision: 'approved',
      report_id: reportId,
      risk_level: 'low',
      overrides_whitelist: overridesWhitelist,
    },
  });
const namesOf = ({ results }: Answer['json']): string[] =>
  results.map(({ domain }: { domain: string }) => domain);

describe('a check', () => {
  it('returns the entry of a domain in any spelling', async () => {
    await listed(
      aDomain('evil.check', { category: 'scam', risk_level: 'medium', reason: 'sells air' }),
      aDomain('xn--bcher-kva.check', { status: 'whitelisted', category: '', risk_level: null }),
    );
    const before = Date.now();
    const checked = await check('evil.check');
    expect(checked).toEqual({
      domain: 'evil.check',
      status: 'blacklisted',
      risk_level: 'medium',
      category: 'scam',
      reason: 'sells air',
      matched_domain: 'evil.check',
      match_type: 'exact',
      source: 'test',
      checked_at: checked.checked_at,
      expires_at: checked.expires_at,
    });
    expect(Date.parse(checked.checked_at)).toBeGreaterThanOrEqual(before);
    expect(Date.parse(checked.expires_at) - Date.parse(checked.checked_at)).toBe(300_000);
    for (const text of [
      'EVIL.Check',
      'evil.check.',
      'evil.check:8443',
      'www.evil.check',
      'http://evil.check/x',
    ])
      expect(await check(text), text).toMatchObject({ domain: 'evil.check', match_type: 'exact' });
    for (const text of ['bücher.check', 'BÜCHER.check', 'XN--BCHER-KVA.check', 'www.bu\u0308cher。check'])
      expect(await check(text), text).toMatchObject({
        domain: 'xn--bcher-kva.check',
        status: 'whitelisted',
        match_type: 'exact',
      });
  });

  it('of an unlisted domain ignores listed look-alikes', async () => {
    await listed(aDomain('nothing.check'));
    for (const domain of ['nothlng.check', 'nothing.checks', 'xnothing.check', 'check'])
      expect(await check(domain), domain).toMatchObject({
        domain,
        status: 'unknown',
        risk_level: null,
        category: null,
        reason: null,
        matched_domain: null,
        match_type: 'none',
        source: null,
      });
  });

  it('uses the nearest listed parent, whitelisted or blacklisted', async () => {
    await listed(
      aDomain('bad.parent'),
      aDomain('good.bad.parent', { status: 'whitelisted' }),
      aDomain('fine.parent', { status: 'whitelisted' }),
      aDomain('hacked.fine.parent'),
      aDomain('retired.bad.parent', { status: 'whitelisted', active: false }),
      aDomain('waiting.bad.parent', { status: 'pending' }),
      aDomain('waiting.parent', { status: 'pending' }),
    );
    const verdictOn = async (domain: string): Promise<unknown[]> => {
      const { status, matched_domain: matched, match_type: type } = await check(domain);
      return [status, matched, type];
    };
    expect(await verdictOn('a.b.bad.parent')).toEqual(['blacklisted', 'bad.parent', 'parent']);
    expect(await verdictOn('good.bad.parent')).toEqual(['whitelisted', 'good.bad.parent', 'exact']);
    expect(await verdictOn('x.good.bad.parent')).toEqual(['whitelisted', 'good.bad.parent', 'parent']);
    expect(await verdictOn('x.fine.parent')).toEqual(['whitelisted', 'fine.parent', 'parent']);
    expect(await verdictOn('x.hacked.fine.parent')).toEqual(['blacklisted', 'hacked.fine.parent', 'parent']);
    expect(await verdictOn('retired.bad.parent')).toEqual(['blacklisted', 'bad.parent', 'parent']);
    expect(await verdictOn('waiting.bad.parent')).toEqual(['blacklisted', 'bad.parent', 'parent']);
    expect(await verdictOn('waiting.parent')).toEqual(['unknown', null, 'none']);
  });

  it('blacklists no domain because of a public suffix', async () => {
    await listed(aDomain('github.io'), aDomain('co.uk'), aDomain('mallory.github.io'));
    expect(await check('alice.github.io')).toMatchObject({ status: 'unknown' });
    expect(await check('example.co.uk')).toMatchObject({ status: 'unknown' });
    expect(await check('www.co.uk')).toMatchObject({ status: 'unknown' });
    expect(await check('app.mallory.github.io')).toMatchObject({ matched_domain: 'mallory.github.io' });
    expect(await check('github.io')).toMatchObject({ status: 'blacklisted', match_type: 'exact' });
  });
});

describe('a list', () => {
  it('applies every filter, in listing order', async () => {
    await listed(
      aDomain('a.listed', { category: 'listing' }),
      aDomain('b.listed', { category: 'listing', status: 'whitelisted', risk_level: null }),
      aDomain('c_c.listed', { category: 'listing', risk_level: 'low' }),
      aDomain('d.listed', { category: 'listing', active: false }),
      aDomain('e.listed', { category: 'listing', status: 'pending' }),
    );
    const of = async (query: string): Promise<string[]> =>
      namesOf(await get(`${DOMAINS}?category=listing&${query}`));
    const all = ['a.listed', 'b.listed', 'c_c.listed', 'd.listed', 'e.listed'];
    expect(await of('')).toEqual(all);
    expect(await of('domain=WWW.B.Listed.')).toEqual(['b.listed']);
    expect(await of('status=blacklisted')).toEqual(['a.listed', 'c_c.listed', 'd.listed']);
    expect(await of('risk_level=low')).toEqual(['c_c.listed']);
    expect(await of('active=true')).toEqual(all.filter((name) => name !== 'd.listed'));
    expect(await of('active=no')).toEqual(['d.listed']);
    expect(await of('status=whitelisted&risk_level=high')).toEqual([]);
    const page = await get(`${DOMAINS}?category=listing&limit=2&page=2`);
    expect([namesOf(page), page.count, page.total_pages]).toEqual([['c_c.listed', 'd.listed'], 5, 3]);
    const [record] = page.results;
    expect(record).toEqual({
      id: expect.any(Number),
      domain: 'c_c.listed',
      status: 'blacklisted',
      category: 'listing',
      risk_level: 'low',
      reason: 'of c_c.listed',
      source: 'test',
      evidence_url: '',
      active: true,
      created_at: expect.stringMatching(/Z$/),
      updated_at: record.created_at,
    });
    expect(await get(`${DOMAINS}${record.id}/`)).toEqual(record);
    expect((await call('GET', `${DOMAINS}999999/`)).status).toBe(404);
  });

  it('of one kind has its active records, searched by part or exactly', async () => {
    await listed(
      aDomain('one.search'),
      aDomain('two.search', { status: 'whitelisted' }),
      aDomain('three.search', { active: false }),
      aDomain('xn--bcher-kva.search'),
      aDomain('a_b.search'),
    );
    const found = async (search: string): Promise<string[]> =>
      namesOf(await get(`${DOMAINS}blacklist/?search=${encodeURIComponent(search)}`));
    expect(await found('.search')).toHaveLength(3);
    expect(await found('SEARCH')).toEqual(['one.search', 'xn--bcher-kva.search', 'a_b.search']);
    expect(await found('https://www.one.search/claim')).toEqual(['one.search']);
    expect(await found('bücher.search')).toEqual(['xn--bcher-kva.search']);
    expect(await found('a_b.s')).toEqual(['a_b.search']);
    expect(await found('e_s')).toEqual([]);
    expect(await found('%')).toEqual([]);
    const white = namesOf(await get(`${DOMAINS}whitelist/?limit=100`));
    expect(white).toContain('two.search');
    expect(white).not.toContain('one.search');
  });
});

describe('the changes', () => {
  interface Copied {
    readonly status: string;
    readonly reason: string;
  }
  /** A client that keeps a copy, and asks so much at a time. */
  const client = () => {
    const copy = new Map<string, Copied>();
    const changes: string[] = [];
    let since = '';
    return {
      copy,
      changes,
      since: () => since,
      async ask(limit: number): Promise<boolean> {
        const from = since === '' ? '' : `since=${since}&`;
        const {
          results,
          next_since: next,
          has_more: hasMore,
        } = await get(`${DOMAINS}changes/?${from}limit=${limit}`);
        expect(results.length).toBeLessThanOrEqual(limit);
        for (const { domain, change, status, reason } of results) {
          changes.push(`${domain} ${change}`);
          if (change === 'removed') copy.delete(domain);
          else {
            // The client has what changed.
            if (change === 'changed') expect(copy.has(domain), domain).toBe(true);
            copy.set(domain, { status, reason });
          }
        }
        expect(new Set(namesOf({ results })).size).toBe(results.length);
        since = next;
        return hasMore;
      },
      async catchUp(limit: number): Promise<void> {
        for (let i = 0; await this.ask(limit); i += 1) expect(i).toBeLessThan(1000);
      },
    };
  };

  it('are returned as additions, changes and removals, at any page size', async () => {
    const ours = client();
    await ours.catchUp(1000);
    const before = ours.changes.length;
    const nothing = ours.since();
    expect(await ours.ask(10)).toBe(false);
    expect(ours.since()).toBe(nothing);
    await listed(...Array.from({ length: 7 }, (_, i) => aDomain(`n${i}.changes`)));
    await ours.catchUp(3);
    expect(ours.changes.slice(before)).toEqual(Array.from({ length: 7 }, (_, i) => `n${i}.changes added`));
    await listed(
      aDomain('n1.changes', { reason: 'another' }),
      aDomain('n2.changes', { active: false }),
      aDomain('n3.changes', { status: 'pending' }),
      aDomain('n4.changes', { status: 'whitelisted' }),
      aDomain('n5.changes'),
    );
    await ours.catchUp(2);
    const news = ['n1.changes changed', 'n2.changes removed', 'n3.changes removed', 'n4.changes changed'];
    expect(ours.changes.slice(before + 7)).toEqual(news);
    await listed(aDomain('n2.changes'));
    await ours.catchUp(2);
    expect(ours.changes.slice(before + 11)).toEqual(['n2.changes added']);
    const fresh = client();
    await fresh.catchUp(1);
    expect(fresh.copy).toEqual(ours.copy);
  });

  it('bring every client to the current list during imports and reviews', async () => {
    const names = Array.from({ length: 6 }, (_, i) => `r${i}.random`);
    const record = fc.record({
      name: fc.constantFrom(...names),
      status: fc.constantFrom('blacklisted', 'whitelisted', 'pending'),
      active: fc.boolean(),
      reason: fc.constantFrom('one', 'another'),
    });
    const step = fc.oneof(
      fc.record({
        kind: fc.constant('import' as const),
        parts: fc.array(fc.array(record, { minLength: 1, maxLength: 5 }), { minLength: 1, maxLength: 2 }),
      }),
      fc.record({
        kind: fc.constant('report' as const),
        name: fc.constantFrom(...names),
        isForced: fc.boolean(),
      }),
      fc.record({
        kind: fc.constant('ask' as const),
        client: fc.nat({ max: 1 }),
        limit: fc.integer({ min: 1, max: 4 }),
      }),
    );
    /** What the list holds, by a rule of its own: the last record counts. */
    const oracle = new Map<string, Copied & { active: boolean }>();
    const inForce = (): Map<string, Copied> =>
      new Map(
        [...oracle]
          .filter(([, { active, status }]) => active && status !== 'pending')
          .map(([name, { status, reason }]) => [name, { status, reason }]),
      );
    const ofUs = (copy: ReadonlyMap<string, Copied>): Map<string, Copied> =>
      new Map([...copy].filter(([name]) => names.includes(name)));
    const clients = [client(), client()] as const;
    for (const one of clients) await one.catchUp(1000);
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 10 }), async (steps) => {
        for (const one of steps) {
          if (one.kind === 'ask') await clients[one.client === 0 ? 0 : 1].ask(one.limit);
          else if (one.kind === 'import') {
            const parts = one.parts.map((records) => ({
              domains: records.map(({ name, ...more }) => aDomain(name, more)),
            }));
            await importRecords(world, ...parts);
            for (const { name, status, active, reason } of one.parts.flat())
              oracle.set(name, { status, active, reason });
          } else {
            const made = await call('POST', REPORTS, {
              domain: one.name,
              category: 'scam',
              reason: 'reported',
            });
            const { accepted } = await approve(made.json.id, one.isForced);
            const known = oracle.get(one.name);
            const isWhitelisted = known?.active === true && known.status === 'whitelisted';
            expect(accepted).toBe(one.isForced || !isWhitelisted);
            const stays = known?.active === true && known.status === 'blacklisted' && !one.isForced;
            if (accepted && !stays)
              oracle.set(one.name, { status: 'blacklisted', active: true, reason: 'reported' });
          }
        }
        const fresh = client();
        for (const one of [...clients, fresh]) {
          await one.catchUp(3);
          expect(ofUs(one.copy)).toEqual(inForce());
        }
      }),
      { numRuns: 12 },
    );
  });
});

describe('a report', () => {
  const good = {
    domain: 'https://WWW.Reported.example/claim',
    category: ' phishing ',
    reason: 'asks for the seed',
    evidence: 'https://example.org/shot.png',
  };

  it('is stored and shown to its author, and changes no entry by itself', async () => {
    const { status, json: report } = await call('POST', REPORTS, good);
    expect(status).toBe(201);
    expect(report).toEqual({
      id: expect.any(Number),
      domain: 'reported.example',
      category: 'phishing',
      reason: 'asks for the seed',
      evidence: 'https://example.org/shot.png',
      status: 'pending',
      created_at: expect.stringMatching(/Z$/),
      reviewed_at: null,
    });
    expect(await get(`${REPORTS}${report.id}/`)).toEqual(report);
    const another = (await call('POST', REPORTS, { domain: 'b.example', category: 'scam', reason: 'x' }))
      .json;
    expect(another).toMatchObject({ evidence: '' });
    const { results } = await get(`${REPORTS}?limit=2`);
    expect(results).toEqual([another, report]);
    expect(await check('reported.example')).toMatchObject({ status: 'unknown' });
  });

  it('is not visible to other users', async () => {
    const { json: report } = await call('POST', REPORTS, good);
    const bob = await keyOf('bob');
    const foreign = await call('GET', `${REPORTS}${report.id}/`, undefined, bob);
    const unknown = await call('GET', `${REPORTS}999999/`, undefined, bob);
    expect([foreign.status, unknown.status]).toEqual([404, 404]);
    expect((await call('GET', REPORTS, undefined, bob)).json).toMatchObject({ count: 0, results: [] });
    expect((await call('POST', REPORTS, good, bob)).status).toBe(201);
    expect((await call('GET', REPORTS, undefined, bob)).json).toMatchObject({ count: 1 });
  });

  it('is rejected with an invalid field', async () => {
    const wrong = async (more: object): Promise<unknown> => {
      const { status, json } = await call('POST', REPORTS, { ...good, ...more });
      return status === 400 ? Object.keys(json.errors) : status;
    };
    expect(await wrong({ domain: 'not a host' })).toEqual(['domain']);
    expect(await wrong({ domain: undefined })).toEqual(['domain']);
    expect(await wrong({ category: ' ' })).toEqual(['category']);
    expect(await wrong({ reason: '' })).toEqual(['reason']);
    expect(await wrong({ evidence: 'see the picture' })).toEqual(['evidence']);
    expect(await wrong({ evidence: 'javascript:alert(1)' })).toEqual(['evidence']);
    expect(await wrong({ evidence: '\0' })).toEqual(['evidence']);
  });

  it('is created once by all retries with one Idempotency-Key', async () => {
    const headers = { 'api-key': apiKey, 'Idempotency-Key': 'once' };
    const [first, second] = await Promise.all(
      [1, 2].map(() => world.call('POST', REPORTS, { headers, json: good })),
    );
    expect(second?.json).toEqual(first?.json);
  });
});

it('the stored counts equal the rows after imports and reviews', async () => {
  const schema = (await servedBuilds(world.pool)).schema('catalogue');
  const rows = async (text: string): Promise<unknown[]> =>
    (await world.pool.query(`${text} ORDER BY status, active`)).rows;
  const counted = `SELECT status, active, count(*) AS n FROM ${schema}.domains GROUP BY status, active`;
  await listed(aDomain('was-white.counts', { status: 'whitelisted', active: false }));
  for (const domain of ['new.counts', 'was-white.counts']) {
    const { json: made } = await call('POST', REPORTS, { domain, category: 'scam', reason: 'x' });
    const { accepted } = await approve(made.id, false);
    expect(accepted).toBe(true);
  }
  expect(await rows(`SELECT status, active, n FROM ${schema}.domain_counts`)).toEqual(await rows(counted));
});

it('a rebuild from the log gives the same tables', async () => {
  const state = async (): Promise<{ schema: string; rows: unknown[][] }> => {
    const schema = (await servedBuilds(world.pool)).schema('catalogue');
    const tables = ['domains', 'domain_counts', 'domain_reports', 'import_parts', 'command_outcomes'];
    const rows = await Promise.all(
      tables.map(
        async (table) => (await world.pool.query(`SELECT * FROM ${schema}.${table} ORDER BY 1, 2`)).rows,
      ),
    );
    return { schema, rows };
  };
  const before = await state();
  const clickhouse = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  try {
    await rebuild(
      {
        kafka: world.kafka,
        pool: world.pool,
        clickhouse,
        clock: systemClock,
        log: createLogger('test', 'silent'),
        metrics: createProjectionMetrics(createMetrics('rebuild')),
        signal: new AbortController().signal,
      },
      [catalogue],
      { swap: true, onProgress: () => {} },
    );
  } finally {
    await clickhouse.close();
  }
  const after = await state();
  expect(after.schema).not.toBe(before.schema);
  expect(after.rows).toEqual(before.rows);
  expect(after.rows[0]?.length).toBeGreaterThan(20);
});
