import { randomUUID } from 'node:crypto';

import { z } from 'zod';

import { sleep } from '../../../infra/lifecycle.ts';
import { findOutcomes } from '../../../projections/outcomes/queries.ts';
import { MAX_RECORDS_PER_PART } from '../../../schemas/catalogue.ts';
import type { CommandOf } from '../../../schemas/messages/commands.ts';
import { topics } from '../../../schemas/topics.ts';
import { aDomain } from '../../support/catalogue.ts';
import { wanted } from '../case.ts';
import type { BenchCase } from '../case.ts';
import { servedCase } from '../served-case.ts';
import type { Stores } from '../stores.ts';

const DOMAINS = 500_000;
const WALLETS = 500_000;
const SAMPLES = 1000;
/** Samples for routes that only operators and new clients call. */
const FEW = 100;
/** Every n-th domain is whitelisted. */
const WHITE = 10;
/** Spreads consecutive checks over the list. */
const STRIDE = 7919;

const nameOf = (index: number): string => `site${index}.bench${index % 1000}.com`;
const isWhite = (index: number): boolean => index % WHITE === 0;
const checked = z.object({ status: z.string(), matched_domain: z.string().nullable() });
const page = z.object({ count: z.number() });
const stats = z.object({ total_wallets: z.number(), verified_wallets: z.number() });

export const domains: BenchCase = {
  name: 'domains',
  summary: 'domain checks against a list of 500,000, changes of the list, and counts of 500,000 wallets',
  async run(world, { samples }) {
    const { stores, get, measure, figures } = await servedCase(world, 'domains', samples ?? SAMPLES);
    world.say(`importing ${DOMAINS} domains through the log`);
    const importSeconds = await importDomains(stores);
    world.say(`filling in ${WALLETS} wallets`);
    await fillWallets(stores);

    const check = '/api/dapps/domain-check/?domain=';
    const at = (index: number): number => (index * STRIDE) % DOMAINS;
    let wrong = 0;
    const asking = (name: (index: number) => string) => async (index: number) => {
      const said = checked.parse(JSON.parse(await get(check + name(at(index)))));
      const expected = isWhite(at(index)) ? 'whitelisted' : 'blacklisted';
      if (said.status !== expected || said.matched_domain !== nameOf(at(index))) wrong += 1;
    };
    const wants = { median: wanted.checkMedian, tail: wanted.checkTail };
    await measure('check of a listed domain', asking(nameOf), wants);
    await measure(
      'check of one four levels below a listed one',
      asking((index) => `a.b.c.d.${nameOf(index)}`),
      wants,
    );
    await measure('check of one that is not listed', (index) => `${check}app.other${index}.org`, wants);
    const domainPath = '/api/dapps/domains/';
    const few = Math.min(samples ?? FEW, FEW);
    await measure('blacklist, first page', () => `${domainPath}blacklist/`, {}, few);
    const inPart = (index: number): string => `${domainPath}blacklist/?search=site${at(index)}.`;
    await measure('blacklist, searched', inPart, {}, few);
    let since = '';
    let told = 0;
    const changes = async (): Promise<boolean> => {
      const body = z
        .object({ results: z.array(z.unknown()), next_since: z.string(), has_more: z.boolean() })
        .parse(JSON.parse(await get(`${domainPath}changes/?limit=1000${since}`)));
      since = `&since=${body.next_since}`;
      told += body.results.length;
      return body.has_more;
    };
    await measure('a thousand changes', changes, {}, few);
    while (await changes());
    const wallets = '/api/dapps/vendor-wallets/';
    await measure('counts of all wallets', () => `${wallets}stats/`, {}, few);
    await measure('counts of the wallets of a network', () => `${wallets}stats/?network=sepolia`, {}, few);
    await measure(
      'wallets of a network, a page in the middle',
      () => `${wallets}?network=mainnet&page=5000`,
      {},
      few,
    );

    const white = page.parse(JSON.parse(await get(`${domainPath}whitelist/`)));
    const counts = stats.parse(JSON.parse(await get(`${wallets}stats/`)));
    return {
      figures: [...figures, { name: 'domains imported', value: DOMAINS / importSeconds, unit: '1/s' }],
      completeness: [
        { what: 'checks that told something else than the list', expected: 0, found: wrong },
        { what: 'domains told by what changed', expected: DOMAINS, found: told },
        { what: 'whitelisted domains', expected: DOMAINS / WHITE, found: white.count },
        { what: 'wallets', expected: WALLETS, found: counts.total_wallets },
        { what: 'verified wallets', expected: WALLETS / 4, found: counts.verified_wallets },
      ],
      notes: [
        'The domains come by one import, from its first part in the log to the last row; the wallets are filled in by SQL.',
      ],
    };
  },
};

/** One import, in parts; gives the seconds until it is taken in. */
async function importDomains({ kafka, pool, served }: Stores): Promise<number> {
  const began = performance.now();
  const publisher = kafka.publisher();
  const importId = randomUUID();
  const envelope = { v: 1, actor: 'operator', request_hash: null, issued_at: Date.now() } as const;
  const parts = Math.ceil(DOMAINS / MAX_RECORDS_PER_PART);
  for (let part = 0; part < parts; part += 1) {
    const records = Array.from({ length: MAX_RECORDS_PER_PART }, (_, place) => {
      const index = part * MAX_RECORDS_PER_PART + place;
      return aDomain(nameOf(index), { status: isWhite(index) ? 'whitelisted' : 'blacklisted' });
    });
    const value: CommandOf<'catalogue.part'> = {
      ...envelope,
      id: `${importId}-${part}`,
      type: 'catalogue.part',
      body: { import_id: importId, part, records: { domains: records } },
    };
    await publisher.publish(topics.commands, [{ value }]);
  }
  const value: CommandOf<'catalogue.import'> = {
    ...envelope,
    id: importId,
    type: 'catalogue.import',
    body: { import_id: importId, parts },
  };
  await publisher.publish(topics.commands, [{ value }]);
  await publisher.close();
  for (;;) {
    const outcome = (await findOutcomes(pool, served, [value])).get(importId);
    if (outcome !== undefined && !outcome.accepted) throw new Error(JSON.stringify(outcome.result));
    if (outcome !== undefined) return (performance.now() - began) / 1000;
    await sleep(50);
  }
}

/** Every tenth wallet on sepolia, every fourth verified. */
async function fillWallets({ pool, served }: Stores): Promise<void> {
  const table = `${served.schema('catalogue')}.wallets`;
  await pool.query(
    `INSERT INTO ${table} SELECT n, '0x' || lpad(to_hex(n), 64, '0'), CASE WHEN n % 10 = 0 THEN 'sepolia' ELSE 'mainnet' END,
       'braavos', 'active', n % 4 = 0, n % 5 <> 0, n, NULL, 1, 1 FROM generate_series(1, ${WALLETS}) AS n`,
  );
  await pool.query(
    `INSERT INTO ${table.replace(/wallets$/, 'wallet_counts')}
     SELECT network, count(*), count(*) FILTER (WHERE is_active), count(*) FILTER (WHERE is_verified)
     FROM ${table} GROUP BY network`,
  );
  await pool.query(`VACUUM ANALYZE ${table}`);
}
