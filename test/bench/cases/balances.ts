import { z } from 'zod';

import { STRK_TOKEN, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { wanted } from '../case.ts';
import type { BenchCase, Completeness } from '../case.ts';
import { untilMerged } from '../fill.ts';
import {
  BLOCK_SECONDS,
  FIRST_HEIGHT,
  FIRST_TIME,
  LEGS_PER_BLOCK,
  anchorAll,
  bytes,
  fillBlocks,
  inserter,
  made,
} from '../ledger.ts';
import { latency, timed } from '../measure.ts';
import { servedCase } from '../served-case.ts';
import type { Stores } from '../stores.ts';

const SAMPLES = 300;
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
  summary:
    'balances from the index and read from the chain through the log, histories, and the largest account',
  async run(world, { hotLegs, samples }) {
    const count = samples ?? SAMPLES;
    const { stores, get, measure, figures } = await servedCase(world, 'balances', count, {
      OBSERVER_CALLS_PER_SECOND: '10000',
    });
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

    figures.push(
      ...latency('read anew through the log', refreshed.samples, { median: wanted.refreshMedian }),
    );
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
        'Each read from the chain uses another account; its time includes the simulated node.',
      ],
    };
  },
};

/** Fills ledger legs and their sums, their blocks, and balances read at the last block. */
async function fillLedger(stores: Stores, blocks: number): Promise<void> {
  const insert = inserter(stores);
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
  await fillBlocks(stores, blocks);
  const known: [Felt, number][] = [
    [HOT, blocks * LEGS_PER_BLOCK],
    [ORDINARY, Math.min(ORDINARY_ROWS, blocks, Math.ceil(blocks / every))],
    ...QUIET.map((account): [Felt, number] => [account, Number(EACH)]),
  ];
  const reads = known.map(([account, held]) => ({ account, token: TOKEN, balance: BigInt(held) }));
  await anchorAll(stores, FIRST_HEIGHT + blocks - 1, reads);
}
