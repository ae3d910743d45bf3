import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import fc from 'fast-check';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { exportCsv, exportJson } from '../../../infra/bin/operator/catalogue/export.ts';
import { FILE_KINDS } from '../../../infra/bin/operator/catalogue/formats.ts';
import type { FileKind } from '../../../infra/bin/operator/catalogue/formats.ts';
import { importFile } from '../../../infra/bin/operator/catalogue/import.ts';
import type { ImportDeps, ImportFile, ImportOutcome } from '../../../infra/bin/operator/catalogue/import.ts';
import { csvReader, readJson } from '../../../infra/bin/operator/catalogue/read-file.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { runPostgresProjection } from '../../../projections/engine/run/postgres-runner.ts';
import type { ProjectionRun } from '../../../projections/engine/run/lifetime.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { tokens } from '../../../projections/tokens/projector.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { allOf, withFile } from '../../support/files.ts';
import { tds } from '../../support/tds.ts';

/** Operators' files, through the log and back. */

let world: ApiWorld;
let deps: ImportDeps;
let listing: ProjectionRun;
const releasers: (() => Promise<void>)[] = [];

beforeAll(async () => {
  world = await apiWorld();
  listing = await runPostgresProjection({
    kafka: world.kafka,
    pool: world.pool,
    log: pino({ level: 'silent' }),
    metrics: createProjectionMetrics(createMetrics('project')),
    projection: tokens,
    groupId: 'tokens',
  });
  const publisher = world.kafka.publisher();
  releasers.push(() => publisher.close());
  deps = {
    commands: world.commands,
    pool: world.pool,
    servedBuilds: () => servedBuilds(world.pool),
    publisher,
    now: Date.now,
  };
});
afterAll(async () => {
  await listing?.stop();
  for (const release of releasers) await release();
  await world?.close();
});

/** Everything that is listed, as the tables have it. */
async function everything(): Promise<Record<string, unknown[]>> {
  const served = await servedBuilds(world.pool);
  const tables: Record<string, unknown[]> = {};
  for (const kind of FILE_KINDS) {
    const schema = served.schema(kind === 'tokens' ? 'tokens' : 'catalogue');
    tables[kind] = (await world.pool.query(`SELECT * FROM ${schema}.${kind} ORDER BY 1`)).rows;
  }
  return tables;
}

type Records = Partial<Record<FileKind, readonly object[]>>;
const withRecords = async <T>(records: Records, work: (file: ImportFile) => Promise<T>): Promise<T> =>
  await withFile(JSON.stringify(records, null, 1), (path) => work({ path, read: readJson }));
const take = async (records: Records): Promise<ImportOutcome> =>
  await withRecords(records, (file) => importFile(deps, file));
const preview = async (records: Records): Promise<ImportOutcome> =>
  await withRecords(records, (file) => importFile(deps, file, { isDryRun: true }));
const counts = (created: number, changed: number, unchanged: number) => ({ created, changed, unchanged });
const listed = (count: number, more: object = {}) =>
  Array.from({ length: count }, (_, at) => ({ domain: `d${at}.example`, status: 'blacklisted', ...more }));

describe('an import', () => {
  it('with one invalid line of 10,000 changes nothing, and reports that line', async () => {
    const before = await everything();
    const lines = listed(10_000).map((record) => JSON.stringify(record));
    lines[7654] = '{"domain": "d7654.example", "status": "blocklisted"}';
    const outcome = await withFile(`{"domains": [\n${lines.join(',\n')}]}`, (path) =>
      importFile(deps, { path, read: readJson }),
    );
    expect(outcome).toEqual({
      isGood: false,
      faultCount: 1,
      faults: [{ line: 7656, text: expect.stringMatching(/^domains\.status: /) }],
    });
    expect(await everything()).toEqual(before);
  });

  it('reports all errors together, and the line of an unknown category', async () => {
    const dapp = { name: 'A', url: 'https://a.example' };
    const outcome = await withFile(
      `{"dapps": [
        {"slug": "one", "category": "nowhere", "name": "A", "url": "https://a.example"},
        {"slug": "two", "category": "here", "name": "A", "url": "https://a.example"},
        {"slug": "no such slug", "category": "missing", "name": "A", "url": "https://a.example"},
        ${JSON.stringify({ ...dapp, slug: 'one' })}
      ],
      "categories": [{"slug": "here", "name": "Here"}]}`,
      (path) => importFile(deps, { path, read: readJson }),
    );
    expect(outcome).toMatchObject({
      isGood: false,
      faults: [
        { line: 2, text: 'dapps.category: no category has the slug nowhere.' },
        { line: 4, text: expect.stringContaining('dapps.slug: ') },
        { line: 4, text: 'dapps.category: no category has the slug missing.' },
        { line: 5, text: 'dapps: slug one repeats line 2.' },
      ],
    });
  });

  it('without records of the requested kind is rejected, naming the kinds it has', async () => {
    await withFile(JSON.stringify({ domains: listed(1) }), async (path) => {
      const file = { path, read: readJson, kind: 'dapps' } as const;
      const refusal = { code: 'INVALID', message: `${path} holds no dapps, but domains` };
      await expect(importFile(deps, file)).rejects.toMatchObject(refusal);
    });
  });

  it('does what its preview showed, and changes nothing when repeated', async () => {
    const first = {
      categories: [{ slug: 'games', name: 'Games' }],
      dapps: [{ slug: 'chess', name: 'Chess', url: 'https://chess.example', category: 'games' }],
      domains: listed(1500),
      tokens: [{ address: '0x1', verified: true, logo: 'https://a.example/1.png' }, { address: '0x2' }],
    };
    const before = await everything();
    const previewed = await preview(first);
    expect(previewed).toEqual({
      isGood: true,
      counts: {
        categories: counts(1, 0, 0),
        dapps: counts(1, 0, 0),
        domains: counts(1500, 0, 0),
        tokens: counts(2, 0, 0),
      },
    });
    expect(await everything()).toEqual(before);
    expect(await take(first)).toEqual(previewed);
    const after = await everything();
    expect(await take(first)).toEqual({
      isGood: true,
      counts: {
        categories: counts(0, 0, 1),
        dapps: counts(0, 0, 1),
        domains: counts(0, 0, 1500),
        tokens: counts(0, 0, 2),
      },
    });
    expect(await everything()).toEqual(after);

    const second = {
      domains: [...listed(10), ...listed(1).map((one) => ({ ...one, domain: 'd10.example', reason: 'x' }))],
      tokens: [
        { address: '0x2', hidden: true },
        { address: '0x1', verified: true },
      ],
      dapps: [{ slug: 'chess', name: 'Chess', url: 'https://chess.example' }],
    };
    const change = { domains: counts(0, 1, 10), tokens: counts(0, 1, 1), dapps: counts(0, 1, 0) };
    expect(await preview(second)).toEqual({ isGood: true, counts: change });
    expect(await everything()).toEqual(after);
    expect(await take(second)).toEqual({ isGood: true, counts: change });
    const [one, two] = (await everything())['tokens'] ?? [];
    // What a file leaves out of a token stays as it is.
    expect([one, two]).toMatchObject([
      { verified: true, logo: 'https://a.example/1.png', hidden: false },
      { verified: false, logo: null, hidden: true },
    ]);
    expect((await everything())['dapps']).toMatchObject([{ slug: 'chess', category: null }]);
  });

  it('killed between its parts has changed nothing, and is complete when repeated', async () => {
    const before = await everything();
    const records = { domains: listed(6000, { reason: 'killed' }) };
    let parts = 0;
    const dying: ImportDeps = {
      ...deps,
      commands: {
        ...deps.commands,
        async submit(request) {
          if (request.type === 'catalogue.import' || (parts += 1) > 5) throw new Error('killed');
          return await deps.commands.submit(request);
        },
      },
    };
    await expect(withRecords(records, (file) => importFile(dying, file))).rejects.toThrow('killed');
    expect(parts).toBeGreaterThan(5);
    expect(await everything()).toEqual(before);
    expect(await take(records)).toMatchObject({ counts: { domains: counts(4500, 1500, 0) } });
    const { domains = [] } = await everything();
    expect(domains).toHaveLength(6000);
    expect(new Set(domains.map((row) => Object(row).changed)).size).toBe(1);
  });

  it('of a file that changes while it is read imports nothing', async () => {
    const before = await everything();
    await withRecords({ domains: listed(3, { reason: 'moving' }) }, async ({ path }) => {
      let reads = 0;
      const read = (name: string) => {
        if ((reads += 1) > 1) writeFileSync(path, '{"domains": [{"domain": "x.example"}]}');
        return readJson(name);
      };
      await expect(importFile(deps, { path, read })).rejects.toThrow('changed while it was read');
    });
    expect(await everything()).toEqual(before);
  });

  it('imports only the requested kind', async () => {
    const outcome = await withRecords(
      { categories: [{ slug: 'only', name: 'Only' }], domains: [{ domain: 'nothing.example' }] },
      (file) => importFile(deps, { ...file, kind: 'categories' }),
    );
    expect(outcome).toEqual({ isGood: true, counts: { categories: counts(1, 0, 0) } });
  });
});

const anyText = fc.string({
  unit: fc.oneof(
    fc.string({ unit: 'grapheme', minLength: 1, maxLength: 1 }),
    fc.constantFrom(
      '"',
      "'",
      '=',
      '+',
      '-',
      '@',
      '|',
      ',',
      ';',
      '\n',
      '\r',
      '\r\n',
      '\t',
      '\\',
      ' ',
      '[',
      '🦀',
    ),
  ),
  maxLength: 30,
});
const storable = anyText.filter((text) => !text.includes('\0') && text.isWellFormed());
const name = storable.filter((text) => text !== '');
const slug = fc.stringMatching(/^[a-z0-9]{1,6}([-_][a-z0-9]{1,4})?$/);
const time = fc.option(
  fc
    .date({ min: new Date(0), max: new Date('2100-01-01'), noInvalidDate: true })
    .map((date) => date.toISOString()),
);
const count = fc.nat();
const address = fc.bigInt({ min: 1n, max: 2n ** 250n }).map((value) => `0x${value.toString(16)}`);
const anyFile = fc.record({
  categories: fc.uniqueArray(fc.record({ slug, name, icon: storable }), {
    selector: (one) => one.slug,
    maxLength: 5,
  }),
  dapps: fc.uniqueArray(
    fc.record(
      {
        slug,
        name,
        url: fc.constant('https://a.example/?q="x",=1'),
        tagline: storable,
        description: storable,
        tags: fc.array(name, { maxLength: 3 }),
        networks: fc.array(slug, { maxLength: 3 }),
        tvl_usd: fc.option(fc.double({ min: 0, noNaN: true, noDefaultInfinity: true })),
        daily_users: count,
        rating: fc.nat(999).map((value) => (value / 100).toFixed(2)),
        is_featured: fc.boolean(),
        is_active: fc.boolean(),
        launched_at: time,
      },
      { requiredKeys: ['slug', 'name', 'url'] },
    ),
    { selector: (one) => one.slug, maxLength: 5 },
  ),
  ads: fc.uniqueArray(
    fc.record({
      key: slug,
      placement: slug,
      title: name,
      description: storable,
      target_url: fc.constant('https://a.example'),
      network: fc.option(slug),
      priority: fc.integer(),
      starts_at: time,
      total_impression_limit: fc.option(fc.maxSafeNat()),
      is_active: fc.boolean(),
    }),
    { selector: (one) => one.key, maxLength: 5 },
  ),
  domains: fc.uniqueArray(
    fc.record({
      domain: slug.map((text) => `${text.replaceAll('_', 'x')}.example`),
      status: fc.constantFrom('whitelisted', 'blacklisted', 'pending'),
      category: storable,
      risk_level: fc.option(fc.constantFrom('low', 'medium', 'high')),
      reason: storable,
      source: storable,
      active: fc.boolean(),
    }),
    { selector: (one) => one.domain, maxLength: 5 },
  ),
  class_hashes: fc.uniqueArray(
    fc.record({
      network: slug,
      account_type: slug,
      class_hash: address,
      version: storable,
      released_at: time,
    }),
    { selector: (one) => one.class_hash, maxLength: 5 },
  ),
  wallets: fc.uniqueArray(
    fc.record({
      wallet_address: address,
      network: slug,
      wallet_type: slug,
      status: fc.constantFrom('pending', 'active', 'inactive', 'suspended'),
      transaction_count: fc.maxSafeNat(),
      last_activity_at: time,
    }),
    { selector: (one) => one.wallet_address, maxLength: 5 },
  ),
  tokens: fc.uniqueArray(
    fc.record({
      address,
      verified: fc.boolean(),
      common: fc.boolean(),
      public: fc.boolean(),
      hidden: fc.boolean(),
      logo: fc.option(storable.filter((text) => text !== '')),
    }),
    { selector: (one) => one.address, maxLength: 5 },
  ),
});

describe('an export', () => {
  it('changes nothing when it is imported again, as JSON and as CSV', async () => {
    await fc.assert(
      fc.asyncProperty(anyFile, async (file) => {
        expect(await take(file)).toMatchObject({ isGood: true });
        const before = await everything();
        const out = { db: world.pool, served: await servedBuilds(world.pool) };
        const json = (await allOf(exportJson(out, FILE_KINDS))).join('');
        const outcome = await withFile(json, (path) => importFile(deps, { path, read: readJson }));
        expect(outcome).toMatchObject({ isGood: true });
        if (!outcome.isGood) return;
        for (const kind of FILE_KINDS) {
          const all = before[kind]?.length ?? 0;
          if (all > 0) expect(outcome.counts[kind], kind).toEqual(counts(0, 0, all));
          const csv = (await allOf(exportCsv(out, kind))).join('');
          const again = await withFile(csv, (path) =>
            importFile(deps, { path, read: csvReader(kind) }, { isDryRun: true }),
          );
          expect(again, csv).toEqual({
            isGood: true,
            counts: all === 0 ? {} : { [kind]: counts(0, 0, all) },
          });
        }
        expect(await everything()).toEqual(before);
      }),
      { numRuns: 8 },
    );
  });
});

describe('tds catalogue', () => {
  it('imports, previews and exports files, and rejects invalid ones naming their lines', async () => {
    const run = async (...args: readonly string[]) => await tds(world.env, 'catalogue', ...args);
    await withFile('slug,name\ncards,=Cards\n', async (path) => {
      const named = `${path}.csv`;
      writeFileSync(named, readFileSync(path));
      expect(await run('import', named)).toMatchObject({
        code: 1,
        stderr: expect.stringContaining('--kind'),
      });
      expect(await run('import', named, '--kind', 'categories', '--dry-run')).toMatchObject({
        code: 0,
        stdout: 'Dry run, nothing is changed:\ncategories: 1 created, 0 changed, 0 unchanged\n',
      });
      const taken = await run('import', named, '--kind', 'categories', '--json');
      expect(JSON.parse(taken.stdout)).toEqual({ dry_run: false, counts: { categories: counts(1, 0, 0) } });
      const exported = join(path, '..', 'out.csv');
      expect(await run('export', exported, '--kind', 'categories')).toMatchObject({ code: 0, stdout: '' });
      expect(readFileSync(exported, 'utf8')).toContain(`"cards","'=Cards",""\n`);
      expect(await run('import', exported, '--kind', 'categories')).toMatchObject({
        stdout: expect.stringMatching(/^categories: 0 created, 0 changed, \d+ unchanged\n$/),
      });
    });
    const all = await run('export');
    expect(Object.keys(JSON.parse(all.stdout))).toEqual([...FILE_KINDS]);
    await withFile('{"domains": [\n{"domain": "a"},\n{"domian": "b"}]}', async (path) => {
      expect(await run('import', path)).toEqual({
        code: 1,
        stdout: '',
        stderr: [
          `${path}: 4 errors; nothing is changed.`,
          '  line 2: domains.status: This field is required.',
          '  line 3: domains: there is no field "domian".',
          '  line 3: domains.domain: This field is required.',
          '  line 3: domains.status: This field is required.',
          '',
        ].join('\n'),
      });
      const refused = await run('import', path, '--json');
      expect([refused.code, JSON.parse(refused.stdout)]).toMatchObject([1, { error_count: 4 }]);
    });
    for (const [args, text] of [
      [['import', '/nowhere.json'], 'Cannot read /nowhere.json'],
      [['export', '/nowhere/out.json'], 'Cannot write /nowhere/out.json'],
      [['import', 'x.json', '--kind', 'dapp'], "'dapp' is invalid. Allowed choices are categories, "],
      [['export', '--format', 'xml'], "'xml' is invalid. Allowed choices are json, csv."],
      [['export', '--format', 'csv'], 'CSV holds one kind'],
    ] as const)
      expect(await run(...args)).toMatchObject({ code: 1, stderr: expect.stringContaining(text) });
  });

  it('an export to a full disk is reported in one line, and leaves nothing', async () => {
    const records = Array.from({ length: 50 }, (_, i) => ({ domain: `full${i}.example`, status: 'pending' }));
    expect(await take({ domains: records })).toMatchObject({ isGood: true });
    const folder = mkdtempSync(join(tmpdir(), 'tds-full-'));
    const exporting = async (to: string): Promise<[code: unknown, stderr: string]> => {
      // A file may have one block: the next write fails as on a full disk.
      const command = `ulimit -f 1; exec ${process.execPath} infra/bin/tds.ts catalogue export ${to}`;
      const env = { PATH: process.env['PATH'] ?? '', DATA_DIR: folder, ...world.env };
      return await new Promise((resolve) => {
        execFile('sh', ['-c', command], { env }, (error, _, stderr) => resolve([error?.code ?? 0, stderr]));
      });
    };
    try {
      expect(await exporting(`${folder}/out.json`)).toEqual([
        1,
        `Cannot write ${folder}/out.json: EFBIG: file too large, write\n`,
      ]);
      expect(readdirSync(folder)).toEqual([]);
      expect(await exporting('> /dev/full')).toEqual([
        1,
        'Cannot write the output: ENOSPC: no space left on device, write\n',
      ]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('a rebuild from the log or from a snapshot gives the same rows with the same ids', async () => {
    const before = await everything();
    expect(before['domains']?.length).toBeGreaterThan(1000);
    expect(await tds(world.env, 'rebuild', 'catalogue')).toMatchObject({ code: 0 });
    expect(await everything()).toEqual(before);
    expect(await tds(world.env, 'snapshot')).toMatchObject({ code: 0 });
    expect(await tds(world.env, 'rebuild', 'catalogue')).toMatchObject({ code: 0 });
    expect(await everything()).toEqual(before);
    // What comes after goes on from there.
    expect(await take({ domains: [{ domain: 'after.example', status: 'pending' }] })).toMatchObject({
      counts: { domains: counts(1, 0, 0) },
    });
    expect(Object(((await everything())['domains'] ?? []).at(-1))).toMatchObject({
      id: (before['domains']?.length ?? 0) + 1,
      domain: 'after.example',
    });
  });
});
