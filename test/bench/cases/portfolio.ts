import { z } from 'zod';

import { sleep } from '../../../infra/lifecycle.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
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
} from '../ledger.ts';
import { servedCase } from '../served-case.ts';
import type { Stores } from '../stores.ts';

const SAMPLES = 300;
const TOKENS = 200;
/** Blocks in which the ordinary account receives tokens. */
const GIFTS = 50;
/** Days with prices, from the first block on. */
const PRICED_DAYS = 31;
const DAY = 86_400;

const OWNER = toFelt(0x0a11_0f17n);
const HOT = toFelt(0xfeed_0001n);
const tokenAt = (index: number): Felt => toFelt(0x7041_e40_0000n + BigInt(index));
const tokens = Array.from({ length: TOKENS }, (_, i) => tokenAt(i));

const portfolio = z.object({
  complete: z.literal(false).optional(),
  data: z.object({
    holdings_count: z.number(),
    untracked_count: z.number(),
    holdings: z.array(z.object({ balance: z.string() })),
  }),
});
const history = z.object({ count: z.number(), data: z.array(z.object({ holdings_count: z.number() })) });

export const portfolios: BenchCase = {
  name: 'portfolio',
  summary:
    'portfolios now and two years back, of 200 tokens and of the account with most legs, and their histories',
  async run(world, { hotLegs, samples }) {
    const count = samples ?? SAMPLES;
    const { stores, get, measure, figures } = await servedCase(world, 'portfolio', count);

    world.say(`filling an account with ${hotLegs} legs`);
    const blocks = Math.ceil(hotLegs / LEGS_PER_BLOCK);
    const every = Math.max(TOKENS, Math.floor(blocks / GIFTS));
    await fillLedger(stores, blocks, every);
    await publishPrices(stores);
    world.say('waiting for the merges of ClickHouse');
    const mergeSeconds = await untilMerged(stores);

    const iso = (seconds: number): string => new Date(seconds * 1000).toISOString();
    // Another time in the first month for each request.
    const pastBlock = (index: number): number =>
      Math.min(blocks - 1, TOKENS + ((index * 97) % ((PRICED_DAYS - 2) * (DAY / BLOCK_SECONDS))));
    const timeOf = (block: number): number => FIRST_TIME + block * BLOCK_SECONDS;
    const now = (account: Felt): string => `/api/portfolio/?account_address=${account}`;
    const past = (account: Felt, index: number): string =>
      `${now(account)}&at_time=${iso(timeOf(pastBlock(index)))}`;
    const hours = (account: Felt, from: number, points: number): string => {
      const start = Math.ceil(timeOf(from) / 3600) * 3600;
      return `/api/portfolio-history/?account_address=${account}&start_time=${iso(start)}&end_time=${iso(start + (points - 1) * 3600)}`;
    };

    world.say('comparing');
    const said = async (path: string): Promise<{ units: number; held: number; unpriced: number }> => {
      const { data } = portfolio.parse(JSON.parse(await get(path)));
      const units = data.holdings.reduce((sum, { balance }) => sum + Number(balance), 0);
      return { units, held: data.holdings_count, unpriced: data.untracked_count };
    };
    const giftsUpTo = (block: number): number =>
      tokens.reduce((sum, _, i) => sum + (i + 1) * giftsOf(i, block, every), 0);
    const [present, before] = [await said(now(OWNER)), await said(past(OWNER, 5))];
    const [hotNow, hotBefore] = [await said(now(HOT)), await said(past(HOT, 5))];
    const month = history.parse(JSON.parse(await get(hours(OWNER, TOKENS, 24 * 30))));
    const legsUpTo = (block: number): number => (block + 1) * LEGS_PER_BLOCK;
    const completeness: Completeness[] = [
      { what: 'tokens held now', expected: TOKENS, found: present.held },
      { what: 'of them without a price', expected: 0, found: present.unpriced },
      { what: 'units held now', expected: giftsUpTo(blocks - 1), found: present.units },
      { what: 'tokens held two years back', expected: TOKENS, found: before.held },
      { what: 'of them without a price then', expected: 0, found: before.unpriced },
      { what: 'units held two years back', expected: giftsUpTo(pastBlock(5)), found: before.units },
      { what: 'units of the hot account', expected: legsUpTo(blocks - 1), found: hotNow.units },
      { what: 'two years back', expected: legsUpTo(pastBlock(5)), found: hotBefore.units },
      { what: 'points of a month', expected: 24 * 30, found: month.count },
    ];

    const hot = `of the account with ${hotLegs.toLocaleString('en-US')} legs`;
    await measure(`portfolio of ${TOKENS} tokens`, () => now(OWNER), { tail: wanted.portfolioTail });
    await measure('two years back', (index) => past(OWNER, index), { tail: wanted.portfolioTail });
    await measure(hot, () => now(HOT), { tail: wanted.hotPortfolioTail });
    await measure(`${hot}, two years back`, (index) => past(HOT, index), { tail: wanted.hotPortfolioTail });
    const few = Math.min(count, 30);
    await measure(
      'history of a month of hours',
      (index) => hours(OWNER, TOKENS + ((index * 97) % (blocks / 2)), 24 * 30),
      {},
      few,
    );
    await measure(
      `the same ${hot}`,
      (index) => hours(HOT, TOKENS + ((index * 97) % (blocks / 2)), 24 * 30),
      {},
      few,
    );
    await measure(
      'history of 5,000 hours',
      (index) => hours(OWNER, TOKENS + index * 97, 5000),
      {},
      Math.min(few, 5),
    );
    return {
      figures,
      completeness,
      notes: [
        `The sums of the ledger were filled by ClickHouse itself with ${blocks} blocks: half of the hot account's legs in one token, the others spread over ${TOKENS - 1}; measured after ${mergeSeconds.toFixed(0)} s of waiting for merges.`,
      ],
    };
  },
};

/** How often the ordinary account received the i-th token up to a block. */
function giftsOf(index: number, block: number, every: number): number {
  return block < index ? 0 : Math.min(GIFTS, Math.floor((block - index) / every) + 1);
}

/** Fills the deltas of both accounts by block and range, their blocks, and balances read at the last block. */
async function fillLedger(stores: Stores, blocks: number, every: number): Promise<void> {
  const insert = inserter(stores);
  const token = (index: string): string =>
    `toFixedString(reverse(reinterpretAsFixedString(reinterpretAsUInt256(reverse(${bytes(tokenAt(0))})) + ${index})), 32)`;
  const half = LEGS_PER_BLOCK / 2;
  const other = `1 + number % ${TOKENS - 1}`;
  const height = `toUInt32(${FIRST_HEIGHT} + number)`;
  for (const one of [bytes(tokenAt(0)), token(other)]) {
    await insert(
      'account_ledger_by_block',
      `SELECT intDiv(${height}, 1024), ${bytes(HOT)}, ${one}, ${height}, ${half}, ${half}, 1, 0 FROM numbers(${blocks})`,
    );
  }
  await insert(
    'account_ledger_by_block',
    `SELECT intDiv(h, 1024), ${bytes(OWNER)}, ${token('i')}, h, i + 1, 1, 1, 0 FROM (
       SELECT number % ${TOKENS} AS i, toUInt32(${FIRST_HEIGHT} + i + ${every} * intDiv(number, ${TOKENS})) AS h
       FROM numbers(${TOKENS * GIFTS})
     ) WHERE h < ${FIRST_HEIGHT + blocks}`,
  );
  await fillBlocks(stores, blocks);
  const last = blocks - 1;
  const others = (index: number): number => Math.floor((last - (index - 1)) / (TOKENS - 1)) + 1;
  await anchorAll(stores, FIRST_HEIGHT + last, [
    ...tokens.map((of, i) => ({
      account: OWNER,
      token: of,
      balance: BigInt((i + 1) * giftsOf(i, last, every)),
    })),
    ...tokens.map((of, i) => ({
      account: HOT,
      token: of,
      balance: BigInt(half * (i === 0 ? blocks : others(i))),
    })),
  ]);
}

/** Fills one price per day and token in the first month, and a current one. */
async function publishPrices({ kafka, clickhouse, pool, served }: Stores): Promise<void> {
  const times = [
    ...Array.from({ length: PRICED_DAYS }, (_, day) => (FIRST_TIME + day * DAY) * 1000),
    Date.now() - 1000,
  ];
  const publisher = kafka.publisher();
  for (const at of times) {
    await publisher.publish(
      topics.prices,
      tokens.map((token, i) => ({
        key: token,
        value: {
          type: 'price.observed' as const,
          v: 1 as const,
          token,
          price: `${i}.${1 + (at % 97)}5`,
          source: 'bench',
          confidence: null,
          observed_at: at,
        },
      })),
    );
  }
  await publisher.close();
  const held = async (): Promise<boolean> => {
    const sql = `SELECT count() AS n FROM ${served.table('price_points')} FINAL WHERE source = 'bench'`;
    const row = z.object({ n: z.coerce.number() });
    const [points] = await clickhouse.rows({ name: 'bench', sql, row });
    const latest = await pool.query(
      `SELECT count(*) AS n FROM ${served.schema('latest-prices')}.latest_prices WHERE token = ANY($1)`,
      [tokens],
    );
    return (points?.n ?? 0) >= tokens.length * times.length && Number(latest.rows[0]?.n) >= tokens.length;
  };
  while (!(await held())) await sleep(200);
}
