import { z } from 'zod';

import { chunksOf } from '../../infra/chunks.ts';
import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { HEIGHT_RANGE, rangeOf } from '../../schemas/topics.ts';
import { felt } from '../../schemas/messages/common.ts';
import type { ServedTables } from '../served.ts';
import { count, feltHex, feltParam, feltText } from '../transfer-reads.ts';
import type { TransferSource } from '../transfer-reads.ts';
import { MAX_UINT32, descending, uint32 } from '../descending.ts';
import { feltSql } from '../sql-terms.ts';

/**
 * Where an account's transfers of a token are, in the order of a page: all, only outgoing, or only incoming ones. A token of
 * unknown standard has none here.
 */
export function transferPositionsOfPair(
  tables: ServedTables,
  side: 'account' | 'from' | 'to',
): TransferSource {
  const legs = { account: '', from: ' AND leg = 1', to: ' AND leg = 2' }[side];
  return {
    sql: `FROM ${tables.table('account_ledger')} FINAL
      WHERE account = ${feltParam(side)} AND token = ${feltParam('token')}${legs}`,
    settles: ['token', side],
    // A transfer to oneself has two legs.
    repeats: true,
  };
}

const sumRow = z.object({
  token: z.string(),
  sum: z.string(),
  legs: z.coerce.number(),
  transfers: z.coerce.number(),
});
export type UnbalancedToken = z.infer<typeof sumRow>;

/**
 * Tokens whose legs do not sum to zero over these heights (both inclusive), or that do not have two legs for each
 * transfer of a known standard. One pass over the ledger and one over `transfers`.
 */
export async function unbalancedTokens(
  clickhouse: RowReader,
  tables: ServedTables,
  { from, to }: { from: number; to: number },
  limit: number,
): Promise<UnbalancedToken[]> {
  const within = `PREWHERE block_desc BETWEEN {newest:UInt32} AND {oldest:UInt32}`;
  const sql = `SELECT ${feltSql('of_token')} AS token, toString(sum(moved)) AS sum, sum(is_leg) AS legs,
      sum(is_transfer) AS transfers
    FROM (
      SELECT token AS of_token, sum(delta) AS moved, count() AS is_leg, 0 AS is_transfer
      FROM ${tables.table('account_ledger')} FINAL ${within} GROUP BY of_token
      UNION ALL
      SELECT token, toInt256(0), 0, countIf(kind != 'unknown') FROM ${tables.table('transfers')} FINAL ${within} GROUP BY token
    )
    GROUP BY of_token HAVING sum(moved) != 0 OR legs != 2 * transfers ORDER BY of_token LIMIT {limit:UInt32}`;
  return await clickhouse.rows(
    { name: 'account-ledger.unbalanced', sql, row: sumRow },
    { newest: descending(to), oldest: descending(from), limit },
  );
}

const settings = { max_threads: 1 } as const;
const signed = z
  .string()
  .regex(/^-?[0-9]+$/)
  .transform(BigInt);

/** Accounts are cut into slices of equal width by the first two bytes, which are at most 0x0800 in a felt. */
const ACCOUNT_PREFIXES = 0x800;
const MAX_SLICES = 64;
const LEGS_PER_SLICE = 1_000_000;
const sizeRow = z.object({ legs: count });
const tokenSumRow = z.object({ of_token: felt, moved: signed });

/** Into how many slices of accounts the ledger is cut, so that one holds about a million legs; at most 64. */
export async function accountSlices(clickhouse: RowReader, tables: ServedTables): Promise<number> {
  const sql = `SELECT toString(total_rows) AS legs FROM system.tables
    WHERE database = currentDatabase() AND name = {ledger:String} AND total_rows IS NOT NULL`;
  const query = { name: 'account-ledger.size', sql, row: sizeRow };
  const [size] = await clickhouse.rows(query, { ledger: tables.table('account_ledger') });
  if (size === undefined) return MAX_SLICES;
  // A power of two, which divides the number of prefixes.
  return Math.min(MAX_SLICES, 2 ** Math.ceil(Math.log2(Math.max(1, size.legs / LEGS_PER_SLICE))));
}

/** Sums of the legs of each ERC-20 token up to a height, modulo 2^256, of the accounts of one of `slices` slices. */
export async function tokenSums(
  clickhouse: RowReader,
  tables: ServedTables,
  options: {
    readonly slice: number;
    readonly slices: number;
    readonly to: number;
    readonly signal: AbortSignal;
  },
): Promise<{ token: Felt; sum: bigint }[]> {
  const { slice, slices, to, signal } = options;
  const start = (of: number): string =>
    ((of * ACCOUNT_PREFIXES) / slices).toString(16).padStart(4, '0').padEnd(64, '0');
  const sql = `SELECT ${feltSql('token')} AS of_token, toString(sum(delta)) AS moved
    FROM ${tables.table('account_ledger')} FINAL
    WHERE account >= toFixedString(unhex({from:String}), 32) AND account < toFixedString(unhex({end:String}), 32)
      AND block_desc >= {newest:UInt32} AND kind = 'erc20'
    GROUP BY token`;
  const isLast = slice === slices - 1;
  const rows = await clickhouse.rows(
    { name: 'account-ledger.token-sums', sql, row: tokenSumRow },
    { from: start(slice), end: isLast ? 'f'.repeat(64) : start(slice + 1), newest: descending(to) },
    { signal, settings: { ...settings, max_result_rows: 0 } },
  );
  return rows.map(({ of_token: token, moved: sum }) => ({ token, sum }));
}

/** The legs of a pair at heights above `after` (-1: from the first on) up to `upTo`. */
export interface Span {
  readonly after: number;
  readonly upTo: number;
}

export interface Moved {
  /** Modulo 2^256, as a signed number. */
  readonly delta: bigint;
  readonly legs: number;
}

const movedRow = z.object({
  span: z.int(),
  o_account: z.string(),
  o_token: z.string(),
  delta: signed,
  o_legs: count,
});

/** Pairs of one statement. ClickHouse takes 1,000 parameters by default, and a pair with a span of its own has seven. */
const PAIRS = 100;

type PairSpan = Span & { readonly account: Felt; readonly token: Felt };

/**
 * Sums the legs of each pair within its span, in the order of the request: from the sums of whole ranges, and from those
 * of blocks in the two ranges that the span cuts. Up to `PAIRS` pairs are read in one statement.
 */
export async function movedWithin(
  clickhouse: RowReader,
  tables: ServedTables,
  asked: readonly PairSpan[],
): Promise<Moved[]> {
  const bySpan = [
    ...Map.groupBy(asked.entries(), ([, { after, upTo }]) => `${after} ${upTo}`).values(),
  ].flat();
  const moved = asked.map((): Moved => ({ delta: 0n, legs: 0 }));
  for (const some of chunksOf(bySpan, PAIRS)) {
    const found = await movedOfSome(
      clickhouse,
      tables,
      some.map(([, one]) => one),
    );
    for (const [n, [i]] of some.entries()) moved[i] = found[n] ?? { delta: 0n, legs: 0 };
  }
  return moved;
}

/** The same in one statement. Reads pairs of one span together, which takes a tenth of the time. */
async function movedOfSome(
  clickhouse: RowReader,
  tables: ServedTables,
  asked: readonly PairSpan[],
): Promise<Moved[]> {
  const real = asked.map((one, i) => ({ ...one, i })).filter(({ after, upTo }) => after < upTo);
  if (real.length === 0) return asked.map(() => ({ delta: 0n, legs: 0 }));
  const spans = [...Map.groupBy(real, ({ after, upTo }) => `${after} ${upTo}`).values()];
  const selects = spans.map((same, span) => {
    const { after, upTo } = same[0] ?? { after: 0, upTo: 0 };
    const among = same.map(({ i }) => `(${feltParam(`account${i}`)}, ${feltParam(`token${i}`)})`);
    const pairs = `(account, token) IN (${among.join(', ')})`;
    const blocks = `SELECT account, token, delta, legs FROM ${tables.table('account_ledger_by_block')} FINAL
      WHERE range IN {cut${span}:Array(UInt32)} AND ${pairs}
        AND block BETWEEN {from${span}:UInt32} AND {to${span}:UInt32}`;
    const { first, last } = wholeRanges({ after, upTo });
    const ranges = `SELECT account, token, delta, legs FROM ${tables.table('account_ledger_ranges')} FINAL
      WHERE ${pairs} AND range BETWEEN {first${span}:UInt32} AND {last${span}:UInt32}`;
    const parts = first > last ? blocks : `${blocks} UNION ALL ${ranges}`;
    return `SELECT ${span} AS span, hex(account) AS o_account, hex(token) AS o_token, toString(sum(p.delta)) AS delta,
        sum(p.legs) AS o_legs FROM (${parts}) AS p GROUP BY account, token`;
  });
  const params = Object.fromEntries<unknown>([
    ...real.flatMap(({ i, account, token }) => [
      [`account${i}`, feltHex(account)] as const,
      [`token${i}`, feltHex(token)] as const,
    ]),
    ...spans.flatMap(([one], span) => (one === undefined ? [] : spanParams(one, span))),
  ]);
  const query = { name: 'account-ledger.moved', sql: selects.join(' UNION ALL '), row: movedRow };
  const rows = await clickhouse.rows(query, params, { settings });
  const keyOf = (span: number, account: string, token: string): string =>
    `${span} ${account} ${token}`.toLowerCase();
  const found = new Map(
    rows.map(({ span, o_account, o_token, delta, o_legs: legs }) => [
      keyOf(span, o_account, o_token),
      { delta, legs },
    ]),
  );
  const moved = asked.map((): Moved => ({ delta: 0n, legs: 0 }));
  for (const [span, same] of spans.entries())
    for (const { i, account, token } of same)
      moved[i] = found.get(keyOf(span, feltHex(account), feltHex(token))) ?? { delta: 0n, legs: 0 };
  return moved;
}

/** The ranges that a span covers whole. */
function wholeRanges({ after, upTo }: Span): { first: number; last: number } {
  return { first: after < 0 ? 1 : rangeOf(after) + 1, last: rangeOf(upTo) - 1 };
}

/** Values of the parameters of the `index`-th span of a statement. */
function spanParams({ after, upTo }: Span, index: number): (readonly [string, unknown])[] {
  const { first, last } = wholeRanges({ after, upTo });
  return [
    [`cut${index}`, [...new Set([rangeOf(Math.max(after, 0)), rangeOf(upTo)])]],
    [`from${index}`, after + 1],
    [`to${index}`, upTo],
    ...(first > last
      ? []
      : ([
          [`first${index}`, first],
          [`last${index}`, last],
        ] as const)),
  ];
}

const tokenRow = z.object({ o_token: feltText, o_delta: signed, o_legs: count });

/** Tokens of one account. */
export const MAX_TOKENS = 100_000;

/**
 * Sums of an account's legs up to a height, by token; tokens without a leg are missing. One more than `MAX_TOKENS` where
 * the account has more.
 */
export async function movedByToken(
  clickhouse: RowReader,
  tables: ServedTables,
  { account, upTo }: { account: Felt; upTo: number },
): Promise<Map<Felt, Moved>> {
  const own = `account = ${feltParam('account')}`;
  const sql = `SELECT hex(token) AS o_token, toString(sum(p.delta)) AS o_delta, sum(p.legs) AS o_legs FROM (
      SELECT token, delta, legs FROM ${tables.table('account_ledger_ranges')} FINAL WHERE ${own} AND range < {last:UInt32}
      UNION ALL
      SELECT token, delta, legs FROM ${tables.table('account_ledger_by_block')} FINAL
      WHERE range = {last:UInt32} AND ${own} AND block <= {upTo:UInt32}
    ) AS p GROUP BY token HAVING o_legs > 0 ORDER BY token LIMIT ${MAX_TOKENS + 1}`;
  const rows = await clickhouse.rows(
    { name: 'account-ledger.by-token', sql, row: tokenRow },
    { account: feltHex(account), last: rangeOf(upTo), upTo },
    { settings: { ...settings, max_result_rows: MAX_TOKENS + 1 } },
  );
  return new Map(rows.map(({ o_token, o_delta, o_legs }) => [o_token, { delta: o_delta, legs: o_legs }]));
}

/**
 * Sum of an account's legs of a token above the previous height (for the first: from the first block on), up to this one.
 */
export type Steps = ReadonlyMap<number, bigint>;

const stepsRow = z.object({ o_token: feltText, o_from: z.array(uint32), o_deltas: z.array(signed) });

/**
 * Sums of an account's legs of each token between consecutive heights, by the height that ends the step; steps and tokens
 * without a leg are missing. One statement for any number of heights: it reads sums of whole ranges, and sums of blocks
 * in the ranges that a height cuts.
 */
export async function movedInSteps(
  clickhouse: RowReader,
  tables: ServedTables,
  { account, heights }: { account: Felt; heights: readonly number[] },
): Promise<Map<Felt, Steps>> {
  const ends = [...new Set(heights)].toSorted((a, b) => a - b);
  const last = ends.at(-1);
  if (last === undefined) return new Map();
  const starts = [0, ...ends.slice(0, -1).map((height) => height + 1)];
  const cut = ends.filter((height) => (height + 1) % HEIGHT_RANGE !== 0).map(rangeOf);
  const own = `account = ${feltParam('account')}`;
  // A step is identified by the height at which it starts, the nearest at or below a block.
  const sql = `SELECT hex(token) AS o_token, groupArray(start) AS o_from, groupArray(toString(moved)) AS o_deltas FROM (
      SELECT token, start, sum(p.delta) AS moved FROM (
        SELECT token, roundDown(toUInt32(range * ${HEIGHT_RANGE}), {starts:Array(UInt32)}) AS start, delta
        FROM ${tables.table('account_ledger_ranges')} FINAL
        WHERE ${own} AND range <= {lastRange:UInt32} AND range NOT IN {cut:Array(UInt32)}
        UNION ALL
        SELECT token, roundDown(block, {starts:Array(UInt32)}) AS start, delta
        FROM ${tables.table('account_ledger_by_block')} FINAL
        WHERE range IN {cut:Array(UInt32)} AND ${own} AND block <= {last:UInt32}
      ) AS p GROUP BY token, start HAVING moved != 0
    ) GROUP BY token`;
  const rows = await clickhouse.rows(
    { name: 'account-ledger.steps', sql, row: stepsRow },
    { account: feltHex(account), starts, cut: [...new Set(cut)], last, lastRange: rangeOf(last) },
    { settings: { ...settings, max_result_rows: MAX_TOKENS } },
  );
  const endOf = new Map(starts.map((start, i) => [start, ends[i] ?? last]));
  return new Map(
    rows.map(({ o_token, o_from, o_deltas }) => [
      o_token,
      new Map(o_from.map((start, i) => [endOf.get(start) ?? last, o_deltas[i] ?? 0n])),
    ]),
  );
}

/** One transfer that touches a pair, with the sum of its legs. */
export interface Movement {
  readonly block: number;
  readonly position: number;
  readonly item: number;
  readonly delta: bigint;
  /** Unix seconds. */
  readonly timestamp: number;
}

/** All legs as one row, column by column: parsing 28,800 rows of their own took 60 ms, this 8. */
const movementColumns = z.object({
  b: z.array(uint32),
  p: z.array(uint32),
  i: z.array(uint32),
  d: z.array(z.string()),
  t: z.array(uint32),
});

/**
 * The transfers that touch a pair between two heights (both inclusive), newest first, at most `limit`. The two legs of a
 * transfer to oneself are adjacent, and are added here: grouping them in SQL took 1.5 times as long for 28,800 rows.
 */
export async function movements(
  clickhouse: RowReader,
  tables: ServedTables,
  { account, token, lo, hi }: { account: Felt; token: Felt; lo: number; hi: number },
  limit: number,
): Promise<Movement[]> {
  const height = (column: string): string => `toUInt32(${MAX_UINT32} - ${column})`;
  const sql = `SELECT groupArray(${height('block_desc')}) AS b, groupArray(${height('position_desc')}) AS p,
      groupArray(${height('item_desc')}) AS i, groupArray(toString(delta)) AS d, groupArray(timestamp) AS t
    FROM (
      SELECT block_desc, position_desc, item_desc, delta, timestamp FROM ${tables.table('account_ledger')} FINAL
      WHERE account = ${feltParam('account')} AND token = ${feltParam('token')}
        AND block_desc BETWEEN {newest:UInt32} AND {oldest:UInt32}
      ORDER BY block_desc, position_desc, item_desc LIMIT {legs:UInt32}
    )`;
  const [columns] = await clickhouse.rows(
    { name: 'account-ledger.movements', sql, row: movementColumns },
    {
      account: feltHex(account),
      token: feltHex(token),
      newest: descending(hi),
      oldest: descending(lo),
      legs: 2 * limit,
    },
    { settings },
  );
  if (columns === undefined) return [];
  const { b, p, i, d, t } = columns;
  const found: { block: number; position: number; item: number; delta: bigint; timestamp: number }[] = [];
  for (const [n, block] of b.entries()) {
    const [position, item, delta] = [p[n] ?? 0, i[n] ?? 0, BigInt(d[n] ?? '')];
    const last = found.at(-1);
    if (last?.block === block && last.position === position && last.item === item) {
      last.delta = BigInt.asIntN(256, last.delta + delta);
    } else if (found.length === limit) {
      break;
    } else {
      found.push({ block, position, item, delta, timestamp: t[n] ?? 0 });
    }
  }
  return found;
}
