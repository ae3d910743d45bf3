import { z } from 'zod';

import type { ChQuery, Params, RowParser, RowReader } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { distinctChunks } from '../distinct-chunks.ts';
import type { ServedTables } from '../served.ts';
import { amongFelts, count, feltHex, feltParam, feltText } from '../transfer-reads.ts';
import { meanOf } from './units.ts';

/** Read side of prices over time. Times are unix milliseconds; prices are decimal strings of US dollars, exact. */

const HOUR_MS = 3_600_000;
/** Negative before 1970: SQL takes it as Int64. */
const hourOf = (ms: number): number => Math.floor(ms / HOUR_MS);
const settings = { max_threads: 1 } as const;

/** Prices of most tokens are observed often, so most prices at a time were observed within the day before. */
const NEAR_HOURS = 24;

/** Tokens and times per statement: ClickHouse takes at most 128 KiB for a parameter. */
const TOKENS = 1000;
const TIMES = 5000;

/**
 * The prices of these tokens at each of these times (ascending): the newest at or before it. One map for each time;
 * tokens without a price are missing.
 */
export async function pricesAtTimes(
  clickhouse: RowReader,
  tables: ServedTables,
  tokens: readonly Felt[],
  times: readonly number[],
): Promise<ReadonlyMap<Felt, string>[]> {
  const [first] = times;
  if (tokens.length === 0 || first === undefined) return times.map(() => new Map());
  const slots = [...new Set(times)];
  const newest = new Map<number, ReadonlyMap<Felt, string>>();
  for (let at = 0; at < slots.length; at += TIMES) {
    const some = slots.slice(at, at + TIMES);
    const after = slots[at - 1] ?? first - NEAR_HOURS * HOUR_MS;
    const found = await newestBySlot(clickhouse, tables, tokens, { after, slots: some });
    for (const [slot, prices] of found) newest.set(slot, prices);
  }
  // These tokens have no price in the day before the first time: the newest older one is looked up by hour.
  const far = tokens.filter((token) => newest.get(first)?.has(token) !== true);
  let known: ReadonlyMap<Felt, string> =
    far.length === 0 ? new Map() : await newestUpTo(clickhouse, tables, far, hourOf(first) - NEAR_HOURS);
  const bySlot = new Map(
    slots.map((slot) => {
      const news = newest.get(slot);
      if (news !== undefined) known = new Map([...known, ...news]);
      return [slot, known];
    }),
  );
  return times.map((time) => bySlot.get(time) ?? new Map());
}

const slotRow = z.object({ o_token: feltText, o_slots: z.array(count), o_prices: z.array(z.string()) });

/** By slot, the newest prices after the previous slot (for the first: after `after`), up to the slot. */
async function newestBySlot(
  clickhouse: RowReader,
  tables: ServedTables,
  tokens: readonly Felt[],
  { after, slots }: { after: number; slots: readonly number[] },
): Promise<Map<number, Map<Felt, string>>> {
  const last = slots.at(-1) ?? after;
  // For times on whole hours the hourly table suffices: it has the last price of an hour, and the first, which may be at
  // its start.
  const points = [after, ...slots].every((time) => time % HOUR_MS === 0)
    ? `(SELECT token, hour, of.1 AS usd, of.2 AS observed_at, seq
        FROM ${tables.table('ohlc_hourly')} ARRAY JOIN [(open_usd, open_at), (close_usd, close_at)] AS of)`
    : tables.table('price_points');
  // roundDown returns the next lower of some values; with negated values, the next higher.
  const sql = `SELECT hex(token) AS o_token, groupArray(slot) AS o_slots, groupArray(newest) AS o_prices FROM (
      SELECT token, -roundDown(-toInt64(observed_at), {slots:Array(Int64)}) AS slot,
        argMax(usd, (observed_at, seq)) AS newest
      FROM ${points}
      WHERE token ${amongFelts('tokens')} AND hour BETWEEN {first_hour:Int64} AND {last_hour:Int64}
        AND observed_at > {after:Int64} AND observed_at <= {last:Int64}
      GROUP BY token, slot
    ) GROUP BY token`;
  const found = await rowsOfTokens(clickhouse, { name: 'prices.at-times', sql, row: slotRow }, tokens, {
    slots: slots.map((slot) => -slot).toReversed(),
    after,
    last,
    first_hour: hourOf(after),
    last_hour: hourOf(last),
  });
  const bySlot = new Map<number, Map<Felt, string>>();
  for (const { o_token, o_slots, o_prices } of found) {
    for (const [i, slot] of o_slots.entries()) {
      const prices = bySlot.get(slot) ?? new Map<Felt, string>();
      prices.set(o_token, o_prices[i] ?? '0');
      bySlot.set(slot, prices);
    }
  }
  return bySlot;
}

const lastRow = z.object({ o_token: feltText, o_price: z.string() });

/** The newest prices up to the end of an hour, however old. */
async function newestUpTo(
  clickhouse: RowReader,
  tables: ServedTables,
  tokens: readonly Felt[],
  hour: number,
): Promise<Map<Felt, string>> {
  const sql = `SELECT hex(token) AS o_token, argMax(close_usd, (hour, seq)) AS o_price
    FROM ${tables.table('ohlc_hourly')}
    WHERE token ${amongFelts('tokens')} AND hour <= {hour:Int64} GROUP BY token`;
  const found = await rowsOfTokens(clickhouse, { name: 'prices.newest', sql, row: lastRow }, tokens, {
    hour,
  });
  return new Map(found.map(({ o_token, o_price }) => [o_token, o_price]));
}

/** The rows of a query for some of these tokens at a time, given as `tokens`. */
async function rowsOfTokens<T>(
  clickhouse: RowReader,
  query: ChQuery<T>,
  tokens: readonly Felt[],
  params: Params,
): Promise<T[]> {
  const rows: T[][] = [];
  for (const some of distinctChunks(tokens, String, TOKENS)) {
    rows.push(await clickhouse.rows(query, { ...params, tokens: some.map(feltHex) }, { settings }));
  }
  return rows.flat();
}

export interface Candle {
  /** A time within the bucket: its first hour that has a price. */
  readonly hourMs: number;
  readonly open: string;
  readonly close: string;
  readonly low: string;
  readonly high: string;
  /** Arithmetic mean of the observations. */
  readonly mean: string;
}

const HOUR_COLUMNS = 'hour AS o_hour, open_usd, close_usd, low_usd, high_usd, total, points';
const BUCKET_COLUMNS = `min(hour) AS o_hour, argMin(open_usd, hour), argMax(close_usd, hour), argMin(low_usd, low),
  argMax(high_usd, high), sum(total), sum(points)`;

/** Both times are inclusive. */
interface CandleWindow {
  readonly token: Felt;
  readonly interval: '1 hour' | keyof typeof BUCKETS;
  readonly start: number;
  readonly end: number;
}

/** What belongs together, as an expression over `hour`: weeks begin on Monday, and 1970-01-01 was a Thursday. */
const BUCKETS = {
  '1 day': 'intDiv(hour, 24)',
  '1 week': 'intDiv(hour + 72, 168)',
  '1 month': `toStartOfMonth(toDateTime(toInt64(hour) * 3600, 'UTC'))`,
} as const;

const USD = String.raw`(\d+(?:\.\d+)?)`;
const CANDLE = new RegExp(String.raw`^(\d+)\t${USD}\t${USD}\t${USD}\t${USD}\t(\d+)\t(\d+)$`);

/** By hand: a schema takes several times as long, and an answer has thousands of these rows. */
const candleRow: RowParser<Candle> = {
  parse(line) {
    const cells = CANDLE.exec(String(line));
    if (cells === null) throw new TypeError(`not a bucket of prices: ${JSON.stringify(line)}`);
    const [, hour = '', open = '', close = '', low = '', high = '', total = '', points = ''] = cells;
    return {
      hourMs: Number(hour) * HOUR_MS,
      open,
      close,
      low,
      high,
      mean: meanOf(BigInt(total), BigInt(points)),
    };
  },
};

/**
 * The buckets of a token that have a price, of the hours that begin within two times (both inclusive): the first `limit`
 * of them, ascending.
 */
export async function candles(
  clickhouse: RowReader,
  tables: ServedTables,
  { token, interval, start, end }: CandleWindow,
  limit: number,
): Promise<Candle[]> {
  // Hours are as they are; grouping them, each alone, would take twice as long.
  const [columns, group] =
    interval === '1 hour' ? [HOUR_COLUMNS, ''] : [BUCKET_COLUMNS, `GROUP BY ${BUCKETS[interval]}`];
  const sql = `SELECT ${columns} FROM ${tables.table('ohlc_hourly')} FINAL
    WHERE token = ${feltParam('token')} AND hour BETWEEN {first:Int64} AND {last:Int64}
    ${group} ORDER BY o_hour LIMIT {limit:UInt32}`;
  return await clickhouse.rows(
    { name: 'prices.candles', sql, row: candleRow, isText: true },
    { token: feltHex(token), first: hourOf(start), last: hourOf(end), limit },
    { settings },
  );
}
