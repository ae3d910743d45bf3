import { z } from 'zod';

import { pause } from '../../../infra/lifecycle.ts';
import { STRK_TOKEN, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { felt } from '../../../schemas/messages/common.ts';
import { topics } from '../../../schemas/topics.ts';
import { wanted } from '../case.ts';
import type { BenchCase, Completeness, Figure } from '../case.ts';
import { untilMerged } from '../fill.ts';
import { latency, timed } from '../measure.ts';
import type { Stores } from '../stores.ts';

const SAMPLES = 300;
/** At the beginning of a range, above everything else. */
const FIRST_HEIGHT = 2_097_152;
const FIRST_TIME = 1_700_000_000;
/** A block each 30 s, and ten legs of the hot account in each: 20 M legs are 694 days, 28,800 a day. */
const BLOCK_SECONDS = 30;
const LEGS_PER_BLOCK = 10;
const DAY_BLOCKS = 86_400 / BLOCK_SECONDS;
const STEP = 2_000_000;
const PAIRS = 200;
const ORDINARY_ROWS = 1000;

const TOKEN = toFelt(0x70cen);
const HOT = toFelt(0xfeedfeedn);
const ORDINARY = toFelt(0x0d17a7n);
const QUIET = Array.from({ length: PAIRS }, (_, i) => toFelt(0x9111_e700_0000n + BigInt(i)));
const EACH = 7n;

const balance = z.object({ data: z.object({ balance: z.string(), stale: z.literal(true).optional() }) });
const history = z.object({ count: z.number(), data: z.array(z.object({ balance: z.string() })) });

export const balances: BenchCase = {
  name: 'balances',
  summary: 'balances from the cache and read anew through the log, histories, and the account with most legs',
  async run(world, { hotLegs, samples }) {
    const chain = await world.chain({ head: 3, perBlock: 20 });
    const { service, dataDir } = await world.service('balances', {
      STARKNET_RPC_URL: chain.url,
      INDEX_FROM: '0',
      OBSERVER_CALLS_PER_SECOND: '10000',
    });
    const stores = await world.stores(dataDir);
    const client = world.client(service.baseUrl, { 'api-key': service.demo.api_key });
    const count = samples ?? SAMPLES;
    const get = async (path: string): Promise<string> => {
      const { status, body } = await client.get(path);
      if (status !== 200) throw new Error(`${path}: ${status} ${body}`);
      return body;
    };
    const ofPair = (account: Felt, token: Felt): string =>
      `account_address=${account}&token_address=${token}`;

    world.say('reading balances from the chain through the log');
    let stale = 0;
    const refreshed = await timed(count, 1, async (index) => {
      const account = toFelt(0xfab_0000_0000n + BigInt(index));
      const body = await get(`/api/balance/?${ofPair(account, STRK_TOKEN)}&force_refresh=true`);
      if (balance.parse(JSON.parse(body)).data.stale === true) stale += 1;
    });

    world.say(`filling an account with ${hotLegs} legs`);
    const blocks = Math.ceil(hotLegs / LEGS_PER_BLOCK);
    await fillLedger(stores, blocks);
    await anchorAll(stores, FIRST_HEIGHT + blocks - 1);
    world.say('waiting for the merges of ClickHouse');
    const mergeSeconds = await untilMerged(stores);

    const lastTime = FIRST_TIME + (blocks - 1) * BLOCK_SECONDS;
    const iso = (seconds: number): string => new Date(seconds * 1000).toISOString();
    const dayOf = (day: number): string => {
      const from = FIRST_TIME + day * 86_400;
      return `start_time=${iso(from)}&end_time=${iso(from + 86_400 - BLOCK_SECONDS)}`;
    };
    const days = Math.max(1, Math.floor(blocks / DAY_BLOCKS));
    const hotDay = (day: number): string => `/api/balance-history/?${ofPair(HOT, TOKEN)}&${dayOf(day)}`;
    const ordinary = `/api/balance-history/?${ofPair(ORDINARY, TOKEN)}&start_time=${iso(FIRST_TIME)}`;
    const cached = (account: Felt): string => `/api/balance/?${ofPair(account, TOKEN)}&max_age=1000000`;

    world.say('comparing');
    const said = async (path: string): Promise<number> =>
      Number(balance.parse(JSON.parse(await get(path))).data.balance);
    const middle = history.parse(JSON.parse(await get(hotDay(Math.floor(days / 2)))));
    const first = history.parse(JSON.parse(await get(ordinary)));
    const completeness: Completeness[] = [
      { what: 'reads that did not come in time', expected: 0, found: stale },
      {
        what: 'balance of the hot account',
        expected: blocks * LEGS_PER_BLOCK,
        found: await said(cached(HOT)),
      },
      {
        what: 'balance of a quiet account',
        expected: Number(EACH),
        found: await said(cached(QUIET[0] ?? HOT)),
      },
      {
        what: 'transfers of the hot account in a day',
        expected: Math.min(DAY_BLOCKS, blocks) * LEGS_PER_BLOCK,
        found: middle.count,
      },
      {
        what: 'its balance at the end of that day',
        expected: Math.min(blocks, (Math.floor(days / 2) + 1) * DAY_BLOCKS) * LEGS_PER_BLOCK,
        found: Number(middle.data.at(-1)?.balance),
      },
      { what: 'rows of the ordinary account', expected: Math.min(ORDINARY_ROWS, blocks), found: first.count },
    ];

    const figures: Figure[] = [
      ...latency('read anew through the log', refreshed.samples, { median: wanted.refreshMedian }),
    ];
    const measure = async (
      name: string,
      path: (index: number) => string,
      want: Parameters<typeof latency>[2],
    ): Promise<void> => {
      world.say(name);
      await timed(10, 1, async (index) => void (await get(path(index))));
      const { samples: took } = await timed(count, 1, async (index) => void (await get(path(index))));
      figures.push(...latency(name, took, want));
    };
    await measure('balance from the cache', (index) => cached(QUIET[index % PAIRS] ?? HOT), {
      median: wanted.balanceMedian,
      tail: wanted.balanceTail,
    });
    await measure(`balance of the account with ${hotLegs.toLocaleString('en-US')} legs`, () => cached(HOT), {
      tail: wanted.balanceTail,
    });
    await measure(`history of ${first.count} rows`, () => ordinary, { tail: wanted.historyTail });
    await measure('a day of the hot account', (index) => hotDay(index % days), { tail: wanted.hotDayTail });
    await measure('all balances of an account', () => `/api/account-balances/?account_address=${HOT}`, {});
    return {
      figures,
      completeness,
      notes: [
        `The ledger was filled by ClickHouse itself with ${blocks} blocks up to ${iso(lastTime)}; measured after ${mergeSeconds.toFixed(0)} s of waiting for merges.`,
        'What is read anew is an account of its own each time; the time of the simulated node is in the figure.',
      ],
    };
  },
};

/** Legs, their sums and the blocks they are in; nothing else of those blocks. */
async function fillLedger({ clickhouse, served }: Stores, blocks: number): Promise<void> {
  const bytes = (hex: Felt): string => `toFixedString(unhex('${hex.slice(2)}'), 32)`;
  const made = (text: string): string =>
    `toFixedString(concat(unhex('00'), substring(SHA256(${text}), 2)), 32)`;
  const insert = async (table: string, select: string): Promise<void> =>
    await clickhouse.command(`INSERT INTO ${served.table(table)} ${select}`);
  const height = `toUInt32(${FIRST_HEIGHT} + number)`;
  const every = Math.max(1, Math.floor(blocks / ORDINARY_ROWS));
  const ordinary = Math.min(ORDINARY_ROWS, blocks);
  const quiet = `toFixedString(reverse(reinterpretAsFixedString(reinterpretAsUInt256(reverse(${bytes(QUIET[0] ?? HOT)})) + number)), 32)`;

  for (let from = 0; from < blocks * LEGS_PER_BLOCK; from += STEP) {
    const n = Math.min(STEP, blocks * LEGS_PER_BLOCK - from);
    await insert(
      'account_ledger',
      `SELECT ${bytes(HOT)}, ${bytes(TOKEN)}, 4294967295 - ${FIRST_HEIGHT} - intDiv(number, ${LEGS_PER_BLOCK}),
         4294967295 - number % ${LEGS_PER_BLOCK}, 4294967295, 2, 1, 'erc20', 0,
         ${FIRST_TIME} + ${BLOCK_SECONDS} * intDiv(number, ${LEGS_PER_BLOCK}), ${made('toString(number)')}, 1, 0
       FROM numbers(${from}, ${n})`,
    );
  }
  await insert(
    'account_ledger',
    `SELECT ${bytes(ORDINARY)}, ${bytes(TOKEN)}, 4294967295 - ${FIRST_HEIGHT} - number * ${every}, 4294967295, 4294967295, 2, 1,
       'erc20', 0, ${FIRST_TIME} + ${BLOCK_SECONDS} * number * ${every}, ${made('toString(number)')}, 1, 0
     FROM numbers(${ordinary})`,
  );
  await insert(
    'account_ledger_by_block',
    `SELECT intDiv(${height}, 1024), ${bytes(HOT)}, ${bytes(TOKEN)}, ${height}, ${LEGS_PER_BLOCK}, ${LEGS_PER_BLOCK}, 1, 0
     FROM numbers(${blocks})`,
  );
  await insert(
    'account_ledger_by_block',
    `SELECT intDiv(h, 1024), ${bytes(ORDINARY)}, ${bytes(TOKEN)}, h, 1, 1, 1, 0
     FROM (SELECT toUInt32(${FIRST_HEIGHT} + number * ${every}) AS h FROM numbers(${ordinary}))`,
  );
  await insert(
    'account_ledger_by_block',
    `SELECT ${FIRST_HEIGHT / 1024}, ${quiet}, ${bytes(TOKEN)}, ${FIRST_HEIGHT}, ${EACH}, 1, 1, 0 FROM numbers(${PAIRS})`,
  );
  await insert(
    'account_ledger_ranges',
    `SELECT account, token, range, sum(delta), sum(legs), 1, 0 FROM ${served.table('account_ledger_by_block')} FINAL
     WHERE range >= ${FIRST_HEIGHT / 1024} GROUP BY account, token, range`,
  );
  await insert(
    'indexed_blocks',
    `SELECT 4294967295 - ${height}, ${made(`concat('block ', toString(number))`)}, ${made(`concat('block ', toString(number - 1))`)},
       ${FIRST_TIME} + ${BLOCK_SECONDS} * number, 'bench', 1, 1, 1, 0, [], 0, number, 1, 0 FROM numbers(${blocks})`,
  );
  await insert(
    'indexed_block_ranges',
    `SELECT 'bench', intDiv(h, 1024) AS bucket, count(), count(), min(h), max(h), max(h), 1, 0
     FROM (SELECT ${height} AS h FROM numbers(${blocks})) GROUP BY bucket`,
  );
}

/** Balances as they were read at a block, through the log. */
async function anchorAll({ clickhouse, kafka, pool, served }: Stores, block: number): Promise<void> {
  const [row] = await clickhouse.rows({
    name: 'bench',
    sql: `SELECT concat('0x', lower(hex(block_hash))) AS hash FROM ${served.table('indexed_blocks')} WHERE block_desc = ${4_294_967_295 - block}`,
    row: z.object({ hash: felt }),
  });
  if (row === undefined) throw new Error('the newest block is not there');
  const now = Date.now();
  const blocks = block - FIRST_HEIGHT + 1;
  const every = Math.max(1, Math.floor(blocks / ORDINARY_ROWS));
  const known: [Felt, bigint][] = [
    [HOT, BigInt(blocks * LEGS_PER_BLOCK)],
    [ORDINARY, BigInt(Math.min(ORDINARY_ROWS, blocks, Math.ceil(blocks / every)))],
    ...QUIET.map((account): [Felt, bigint] => [account, EACH]),
  ];
  const publisher = kafka.publisher();
  await publisher.publish(
    topics.balances,
    known.map(([account, amount]) => ({
      key: `${account}:${TOKEN}`,
      value: {
        type: 'balance.observed' as const,
        v: 1 as const,
        account,
        token: TOKEN,
        balance: amount.toString(),
        block,
        block_hash: row.hash,
        observed_at: now,
        requested_at: now,
        l1_height: null,
      },
    })),
  );
  await publisher.publish(topics.tokens, [
    {
      key: TOKEN,
      value: {
        type: 'token.described' as const,
        v: 1 as const,
        token: TOKEN,
        standard: 'erc20' as const,
        class_hash: null,
        name: 'Bench',
        symbol: 'B',
        decimals: 18,
        block,
        observed_at: now,
      },
    },
  ]);
  await publisher.close();
  const held = async (): Promise<number> => {
    const { rows } = await pool.query(
      `SELECT count(*) AS n FROM ${served.schema('balances')}.anchors WHERE token = $1`,
      [TOKEN],
    );
    return Number(rows[0]?.n);
  };
  while ((await held()) < known.length) await pause(100);
}
