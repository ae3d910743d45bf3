import { z } from 'zod';

import { encodeHoldersCursor } from '../../../api/analytics/holders-cursor.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { wanted } from '../case.ts';
import type { BenchCase, Completeness } from '../case.ts';
import { untilMerged } from '../fill.ts';
import { FIRST_HEIGHT, FIRST_TIME, bytes, inserter, made } from '../ledger.ts';
import { servedCase } from '../served-case.ts';
import type { Stores } from '../stores.ts';

const SAMPLES = 300;
const MAX_HOLDERS = 1_000_000;
/** New holders of a block; the blocks are in ranges of heights of one partition. */
const PER_BLOCK = 100_000;
const BLOCK_STRIDE = 8192;
const DAYS = 365;
const HOURS = 24 * 30;
/** Tokens with a transfer in an hour. */
const TOKENS_PER_HOUR = 200;
const DAY = 86_400;
const HOUR = 3600;

const TOKEN = toFelt(0xb16_70c3n);
/** Start of the first day, before the blocks. */
const FIRST_DAY = Math.floor(FIRST_TIME / DAY) * DAY - DAYS * DAY;

const HOLDERS_WANTED = { median: wanted.holdersMedian, tail: wanted.holdersTail };

const holdersPage = z.object({ count: z.number(), results: z.array(z.object({ balance: z.string() })) });
const periods = z.object({ results: z.array(z.object({ transfers: z.number() })) });

export const analytics: BenchCase = {
  name: 'analytics',
  summary:
    'holders of a token with a million of them, a year of days of a token, a month of hours of the chain',
  async run(world, { rows, samples }) {
    const count = samples ?? SAMPLES;
    const holders = Math.min(MAX_HOLDERS, rows);
    const { stores, get, measure, figures } = await servedCase(world, 'analytics', count);

    world.say(`filling a ledger of ${holders} holders`);
    await fillHolders(stores, holders);
    await fillPeriods(stores);
    world.say('waiting until the passes have derived them');
    const began = performance.now();
    while ((await stores.number('SELECT count() AS n FROM {{token_holders}} FINAL')) < holders)
      await sleep(500);
    const derivedMs = performance.now() - began;
    await untilMerged(stores);

    const page = (query = ''): string => `/api/tokens/${TOKEN}/holders/?limit=100${query}`;
    // Balances are 1 to the number of holders.
    const pageFrom = (index: number): string => {
      const balance = BigInt(1 + ((index * 7919) % holders));
      const cursor = encodeHoldersCursor(
        { after: { account: toFelt(0n), balance }, rank: 1 },
        `${TOKEN} now`,
      );
      return page(`&cursor=${cursor}`);
    };
    const iso = (seconds: number): string => new Date(seconds * 1000).toISOString();
    const range = (first: number, step: number, periodsAsked: number): string =>
      `start_time=${iso(first)}&end_time=${iso(first + (periodsAsked - 1) * step)}`;
    const year = `/api/tokens/${TOKEN}/stats/?interval=1%20day&${range(FIRST_DAY, DAY, DAYS)}`;
    const month = `/api/stats/?interval=1%20hour&${range(FIRST_DAY, HOUR, HOURS)}`;

    world.say('comparing');
    const first = holdersPage.parse(JSON.parse(await get(page())));
    const days = periods.parse(JSON.parse(await get(year)));
    const hours = periods.parse(JSON.parse(await get(month)));
    const completeness: Completeness[] = [
      { what: 'holders', expected: holders, found: first.count },
      { what: 'highest balance', expected: holders, found: Number(first.results[0]?.balance) },
      { what: 'days', expected: DAYS, found: days.results.length },
      { what: 'hours', expected: HOURS, found: hours.results.length },
    ];
    const name = holders.toLocaleString('en-US');
    await measure(`first page of ${name} holders`, () => page(), HOLDERS_WANTED);
    await measure('a page from anywhere among them', pageFrom, HOLDERS_WANTED);
    await measure('a year of days of a token', () => year, { tail: wanted.periodsTail });
    await measure('a month of hours of the chain', () => month, { tail: wanted.periodsTail });
    figures.push({
      name: 'deriving a million holders',
      value: ((derivedMs / 1000) * 1_000_000) / holders,
      unit: 's',
    });
    return { figures, completeness };
  },
};

/** Ledger rows of accounts with balances from 1 on, and the marks of their blocks. */
async function fillHolders(stores: Stores, holders: number): Promise<void> {
  const insert = inserter(stores);
  const blocks = Math.ceil(holders / PER_BLOCK);
  const height = `toUInt32(${FIRST_HEIGHT} + ${BLOCK_STRIDE} * intDiv(number, ${PER_BLOCK}))`;
  const account = made(`concat('holder ', toString(number))`);
  const legs = `${account}, ${bytes(TOKEN)}`;
  await insert(
    'account_ledger_by_block',
    `SELECT intDiv(${height}, 1024), ${legs}, ${height}, toInt256(number + 1), 1, 1, 0 FROM numbers(${holders})`,
  );
  await insert(
    'account_ledger_ranges',
    `SELECT ${legs}, intDiv(${height}, 1024), toInt256(number + 1), 1, 1, 0 FROM numbers(${holders})`,
  );
  const blockHeight = `toUInt32(${FIRST_HEIGHT} + ${BLOCK_STRIDE} * number)`;
  await insert(
    'indexed_blocks',
    `SELECT 4294967295 - ${blockHeight}, ${made(`concat('block ', toString(number))`)}, ${made(`concat('block ', toString(number - 1))`)},
       ${FIRST_TIME} + 30 * number, 'bench', 1, 1, 1, 0, '', [], 0, number, 1, 0 FROM numbers(${blocks})`,
  );
  await insert(
    'token_holders_due',
    `SELECT 4294967295 - ${blockHeight}, intDiv(${FIRST_TIME}, 3600), 0, 0, now() FROM numbers(${blocks})`,
  );
}

async function fillPeriods(stores: Stores): Promise<void> {
  const insert = inserter(stores);
  await insert(
    'token_stats',
    `SELECT ${bytes(TOKEN)}, ${DAY}, ${FIRST_DAY} + ${DAY} * number, number + 1, 0, 1000, 1, 1, 0, 0, 1, 0 FROM numbers(${DAYS})`,
  );
  const token = made(`concat('token ', toString(one))`);
  await insert(
    'chain_stats',
    `SELECT ${HOUR}, ${FIRST_DAY} + ${HOUR} * number, 120, 1000, 100,
       arrayMap(one -> ${token}, range(${TOKENS_PER_HOUR})), arrayMap(one -> one + 1, range(${TOKENS_PER_HOUR})), 1, 0
     FROM numbers(${HOURS})`,
  );
}
