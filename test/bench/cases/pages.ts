import { z } from 'zod';

import { topics } from '../../../schemas/topics.ts';
import { wanted } from '../case.ts';
import type { BenchCase, Completeness, Figure } from '../case.ts';
import type { Client } from '../client.ts';
import { fill, untilMerged } from '../fill.ts';
import { fillHotAccount } from '../hot-account.ts';
import { latency, randomNumbers, timed } from '../measure.ts';
import { watchProcesses } from '../processes.ts';
import { tableSizes } from '../stores.ts';
import type { Stores } from '../stores.ts';
import { createSynthetic } from '../synthetic.ts';
import type { Probe, Synthetic } from '../synthetic.ts';

const SAMPLES = 400;
const PROBES = 200;
const CONNECTIONS = 16;
const TOGETHER = 3000;
const LIMIT = 50;
/** Above the simulated node's heights, to avoid collisions. */
const FIRST_HEIGHT = 102_400;
const ROWS_PER_BLOCK = 500;

const page = z.object({
  count: z.number(),
  results: z.array(z.object({ block: z.number(), event_index: z.number() })),
});

export const pages: BenchCase = {
  name: 'pages',
  summary:
    'pages of 50 transfers through the API: of accounts, of tokens, by hash; alone and from 16 connections',
  async run(world, { rows, hotLegs, samples }) {
    const chain = await world.chain({ head: 3, perBlock: 20 });
    const { service, dataDir } = await world.service('pages', {
      STARKNET_RPC_URL: chain.url,
      INDEX_FROM: '0',
    });
    const stores = await world.stores(dataDir);
    const blocks = Math.ceil(rows / ROWS_PER_BLOCK);
    const synthetic = createSynthetic({ perBlock: ROWS_PER_BLOCK, blocks, probes: PROBES });
    world.say(`filling the tables with ${blocks * ROWS_PER_BLOCK} transfers`);
    const filling = performance.now();
    await fill(stores, synthetic, { first: FIRST_HEIGHT, count: blocks }, world.say);
    const fillSeconds = (performance.now() - filling) / 1000;
    world.say(`filling an account with ${hotLegs} legs`);
    const hot = await fillHotAccount(stores, hotLegs);
    await describeTokens(stores, synthetic);
    world.say('waiting for the merges of ClickHouse');
    const mergeSeconds = await untilMerged(stores);

    const client = world.client(service.baseUrl, { 'api-key': service.demo.api_key });
    world.say('comparing');
    const completeness = [
      ...(await tableCompleteness(stores, synthetic)),
      ...(await pageCompleteness(client, synthetic, hot)),
    ];

    const count = samples ?? SAMPLES;
    const figures: Figure[] = [{ name: 'transfers', value: synthetic.made.transfers, unit: '' }];
    const random = randomNumbers(23);
    const one = <T>(from: readonly T[]): T => {
      const found = from[Math.floor(random() * from.length)];
      if (found === undefined) throw new RangeError('nothing to ask for');
      return found;
    };
    const get = async (path: string): Promise<void> => {
      const { status, body } = await client.get(path);
      if (status !== 200) throw new Error(`${path}: ${status} ${body}`);
    };
    // An unknown parameter gives another cache key for the same answer, so the answer is not cached.
    let questions = 0;
    const anew = (path: string): string => `${path}&question=${(questions += 1)}`;
    const limit = `limit=${LIMIT}`;
    const accountPage = (): string => pathOf({ account: one(synthetic.accounts).felt });
    const tokenPage = (): string => pathOf({ token: one(synthetic.tokens).felt });
    const halfPage = (): string => pathOf({ token: synthetic.half.felt });
    const busiestPage = (): string => pathOf({ account: synthetic.busiest.felt });
    const wish = { median: wanted.pageMedian, tail: wanted.pageTail };
    const kinds: [string, () => string, Parameters<typeof latency>[2]][] = [
      ['account page', accountPage, wish],
      ['token page', tokenPage, wish],
      ['page of the account in half of all rows', busiestPage, wish],
      [
        `page of the account with ${hotLegs.toLocaleString('en-US')} legs`,
        () => pathOf({ account: hot.felt }),
        wish,
      ],
      ['page of the token with half of all rows', halfPage, wish],
      ['page 150 of that token', () => `${halfPage()}&page=150`, {}],
      ['account page, ascending', () => `${accountPage()}&order=asc`, {}],
      [
        'txhash',
        () => `/api/transfers/?${limit}&txhash=${one(synthetic.hashes).hash}`,
        { median: wanted.hashMedian, tail: wanted.hashTail },
      ],
    ];
    for (const [name, path, want] of kinds) {
      world.say(name);
      await timed(20, 1, () => get(anew(path())));
      figures.push(...latency(name, (await timed(count, 1, () => get(anew(path())))).samples, want));
    }
    world.say('the same page again');
    const again = halfPage();
    await get(again);
    figures.push(
      ...latency('a page that was asked for before', (await timed(count, 1, () => get(again))).samples),
    );

    world.say(`${CONNECTIONS} connections`);
    const watched = watchProcesses({ ...service.pids(), bench: process.pid });
    const mixed = [accountPage, tokenPage, busiestPage, halfPage];
    const together = await timed(samples === null ? TOGETHER : 4 * samples, CONNECTIONS, (index) =>
      get(one([mixed[index % mixed.length] ?? halfPage])()),
    );
    const uses = watched.end();
    const unlike = await timed(Math.ceil(together.samples.length / 4), CONNECTIONS, (index) =>
      get(anew(one([mixed[index % mixed.length] ?? halfPage])())),
    );
    figures.push(
      {
        name: `${CONNECTIONS} connections, these four pages in turn`,
        value: together.samples.length / together.seconds,
        unit: 'req/s',
        want: wanted.pageRate,
      },
      ...latency(`${CONNECTIONS} connections`, together.samples),
      {
        name: `${CONNECTIONS} connections, every page read anew`,
        value: unlike.samples.length / unlike.seconds,
        unit: 'req/s',
        want: wanted.pageRate,
      },
      ...latency(`${CONNECTIONS} connections, read anew`, unlike.samples, {
        median: wanted.pageMedianTogether,
      }),
    );
    const sizes = await tableSizes(stores);
    return {
      figures,
      completeness,
      tables: [
        {
          title: `CPU while ${CONNECTIONS} connections ask`,
          columns: ['process', 'CPU s', 'share of two cores %', 'ms CPU a request'],
          rows: uses
            .filter(({ cpuSeconds }) => cpuSeconds > 0.02)
            .map(({ name, cpuSeconds }) => [
              name,
              cpuSeconds,
              (50 * cpuSeconds) / together.seconds,
              (1000 * cpuSeconds) / together.samples.length,
            ]),
        },
        {
          title: 'Tables',
          columns: ['table', 'rows', 'parts', 'MB', 'bytes a row'],
          rows: sizes.map(({ table, rows: held, parts, stored }) => [
            table,
            held,
            parts,
            stored / 1e6,
            stored / held,
          ]),
        },
      ],
      notes: [
        `The tables were filled through the projectors' own code (project, encoder, RowBinary inserts of 50,000 transfers, derive) in ${fillSeconds.toFixed(0)} s, without log and decoder; measured after ${mergeSeconds.toFixed(0)} s of waiting for merges.`,
        `Accounts and tokens asked for are ${PROBES} each, of all sizes; every page is counted and answered in full, without a cursor. Alone, no page is cached; with 16 connections, repeated pages come from the cache, as for any client while nothing new is indexed.`,
        `The account with ${hotLegs.toLocaleString('en-US')} legs is only in the tables that its page reads.`,
      ],
    };
  },
};

function pathOf(filter: { account: string } | { token: string }): string {
  return `/api/transfers/?limit=${LIMIT}&${new URLSearchParams(filter).toString()}`;
}

/** Token names, so that pages have names to look up. */
async function describeTokens({ kafka, pool, served }: Stores, { tokens }: Synthetic): Promise<void> {
  const publisher = kafka.publisher();
  await publisher.publish(
    topics.tokens,
    tokens.map(({ felt }, index) => ({
      key: felt,
      value: {
        type: 'token.described' as const,
        v: 1 as const,
        token: felt,
        standard: 'erc20' as const,
        class_hash: null,
        name: `Bench token ${index}`,
        symbol: `B${index}`,
        decimals: 18,
        block: FIRST_HEIGHT,
        observed_at: Date.now(),
      },
    })),
  );
  await publisher.close();
  const held = async (): Promise<number> =>
    Number((await pool.query(`SELECT count(*) AS n FROM ${served.schema('tokens')}.tokens`)).rows[0]?.n);
  for (let waited = 0; waited < 100 && (await held()) < tokens.length; waited += 1)
    await new Promise((resolve) => setTimeout(resolve, 100));
}

async function tableCompleteness(
  stores: Stores,
  { made, half, busiest }: Synthetic,
): Promise<Completeness[]> {
  const own = `block_desc <= ${0xffff_ffff - FIRST_HEIGHT}`;
  const rows = async (what: string, expected: number, sql: string): Promise<Completeness> => ({
    what,
    expected,
    found: await stores.number(sql),
  });
  return [
    await rows('transfers', made.transfers, `SELECT count() AS n FROM {{transfers}} FINAL WHERE ${own}`),
    await rows(
      'account_ledger, two legs a transfer',
      2 * made.transfers,
      `SELECT count() AS n FROM {{account_ledger}} FINAL WHERE ${own}`,
    ),
    await rows(
      'tx_index, keys',
      made.transfers,
      `SELECT sum(length(positions)) AS n FROM {{tx_index}} FINAL WHERE ${own}`,
    ),
    await rows(
      'indexed_blocks',
      made.blocks,
      `SELECT count() AS n FROM {{indexed_blocks}} FINAL WHERE ${own}`,
    ),
    await rows(
      'transfers of the largest token',
      half.transfers,
      `SELECT count() AS n FROM {{transfers}} FINAL WHERE ${own} AND token = unhex('${half.felt.slice(2)}')`,
    ),
    await rows(
      'account_feed of the largest account',
      busiest.transfers,
      `SELECT count() AS n FROM {{account_feed}} FINAL WHERE ${own} AND account = unhex('${busiest.felt.slice(2)}')`,
    ),
  ];
}

/** Checks count and newest page of every subject that is measured later. */
async function pageCompleteness(client: Client, synthetic: Synthetic, hot: Probe): Promise<Completeness[]> {
  let counts = 0;
  let rows = 0;
  const look = async (path: string, expected: { count: number; keys: readonly string[] }): Promise<void> => {
    const { count, results } = await client.read(path, page);
    counts += Math.abs(count - expected.count);
    const keys = results.map(({ block, event_index }) => `${block}:${event_index}`);
    const length = Math.max(keys.length, expected.keys.length);
    for (let index = 0; index < length; index += 1) if (keys[index] !== expected.keys[index]) rows += 1;
  };
  const lookAt = (kind: 'account' | 'token', { felt, transfers, newest }: Probe): Promise<void> =>
    look(pathOf(kind === 'account' ? { account: felt } : { token: felt }), {
      count: transfers,
      keys: newest.slice(0, LIMIT),
    });
  for (const probe of [...synthetic.accounts, synthetic.busiest, hot]) await lookAt('account', probe);
  for (const probe of synthetic.tokens) await lookAt('token', probe);
  // The simulated node's own few blocks also contain STRK; they are older than all of these.
  const { count } = await client.read(
    `${pathOf({ token: synthetic.half.felt })}&to_block=${FIRST_HEIGHT - 1}`,
    page,
  );
  await lookAt('token', { ...synthetic.half, transfers: synthetic.half.transfers + count });
  for (const { hash, keys } of synthetic.hashes)
    await look(`/api/transfers/?limit=${LIMIT}&txhash=${hash}`, { count: keys.length, keys });
  return [
    { what: 'counts of the API for every subject (sum of differences)', expected: 0, found: counts },
    { what: 'rows of the newest pages that differ', expected: 0, found: rows },
  ];
}
