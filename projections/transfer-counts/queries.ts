import { z } from 'zod';

import type { ClickHouse, Params } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { HEIGHT_RANGE, heightsOf, rangeOf } from '../../schemas/topics.ts';
import type { ServedTables } from '../served.ts';
import { MAX_HEIGHT, amongFelts, count, feltHex, feltParam, feltText } from '../transfer-reads.ts';

/** A token or an account whose transfers are counted: for an account those in and out; one to itself once. */
export interface Subject {
  readonly kind: 'token' | 'account';
  readonly felt: Felt;
}

const kinds = { token: 1, account: 2 } as const;
const settings = { max_threads: 1 } as const;

const sumRow = z.object({ total: count });
const totalRow = sumRow.extend({ i: z.int() });

/** The number of transfers of each subject up to a height, in the order of the request. */
export async function subjectTotals(
  clickhouse: ClickHouse,
  tables: ServedTables,
  subjects: readonly Subject[],
  upTo: number = MAX_HEIGHT,
): Promise<number[]> {
  if (subjects.length === 0) return [];
  const isBounded = upTo < MAX_HEIGHT;
  const selects = subjects.map(({ kind }, i) => {
    const where = `subject_kind = ${kinds[kind]} AND subject = ${feltParam(`s${i}`)}`;
    const ranges = `${tables.table('transfer_counts')} FINAL WHERE ${where}`;
    const rows = isBounded
      ? `(SELECT transfers FROM ${ranges} AND range < {cut:UInt32} UNION ALL
          SELECT transfers FROM ${tables.table('transfer_counts_by_block')} FINAL
          WHERE range = {cut:UInt32} AND ${where} AND block <= {upTo:UInt32})`
      : ranges;
    return `SELECT ${i} AS i, sum(transfers) AS total FROM ${rows}`;
  });
  const params = {
    ...Object.fromEntries(subjects.map(({ felt }, i) => [`s${i}`, feltHex(felt)])),
    ...(isBounded ? { cut: rangeOf(upTo), upTo } : {}),
  };
  const query = { name: 'transfer-counts.totals', sql: selects.join(' UNION ALL '), row: totalRow };
  const rows = await clickhouse.rows(query, params, { settings });
  return subjects.map((_, i) => rows.find((row) => row.i === i)?.total ?? 0);
}

const busyRow = z.object({ account: feltText });

/** Which of these accounts have more transfers than `moreThan`, of all tokens together. */
export async function busyAccounts(
  clickhouse: ClickHouse,
  tables: ServedTables,
  accounts: readonly Felt[],
  moreThan: number,
): Promise<Set<Felt>> {
  const sql = `SELECT hex(subject) AS account FROM ${tables.table('transfer_counts')} FINAL
    WHERE subject_kind = ${kinds.account} AND subject ${amongFelts('accounts')}
    GROUP BY subject HAVING sum(transfers) > {most:UInt64}`;
  const rows = await clickhouse.rows(
    { name: 'transfer-counts.busy', sql, row: busyRow },
    { accounts: accounts.map(feltHex), most: moreThan },
    { settings },
  );
  return new Set(rows.map(({ account }) => account));
}

/** The rows of a subject to find: `need` rows after `skip` rows, between two heights, in an order. */
export interface RowsWanted {
  readonly order: 'desc' | 'asc';
  /** Both inclusive. */
  readonly lo: number;
  readonly hi: number;
  readonly skip: number;
  readonly need: number;
}

/** Where the rows are: between these heights, after the first `skip` of the `rows` there. */
export interface RowsFound {
  readonly lo: number;
  readonly hi: number;
  readonly skip: number;
  readonly rows: number;
}

const windowRow = sumRow.extend({ hits: count, first: count, last: count, before: count, inside: count });

/**
 * The buckets that hold the wanted rows, found by summing counts instead of reading rows. `buckets` gives (bucket, n).
 */
function windowSql(buckets: string, order: 'desc' | 'asc'): string {
  const way = order === 'desc' ? 'DESC' : 'ASC';
  return `SELECT max(everything) AS total, countIf(hit) AS hits, minIf(bucket, hit) AS first, maxIf(bucket, hit) AS last,
      minIf(upto - n, hit) AS before, sumIf(n, hit) AS inside
    FROM (
      SELECT bucket, n, sum(n) OVER (ORDER BY bucket ${way} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto,
        sum(n) OVER () AS everything, upto > {skip:UInt64} AND upto - n < {skip:UInt64} + {need:UInt64} AS hit
      FROM (${buckets})
    )`;
}

/** A window that holds more rows than this is narrowed to single heights. */
const WIDE_WINDOW_ROWS = 4000;

/**
 * Finds where a subject's n-th row lies, and how many rows the bounds hold in all: one small read for the ranges of 1024
 * heights, and one for the heights where a range holds many.
 */
export async function findRows(
  clickhouse: ClickHouse,
  tables: ServedTables,
  subject: Subject,
  wanted: RowsWanted,
): Promise<{ total: number; found: RowsFound | null }> {
  const { order, lo, hi, skip, need } = wanted;
  const where = `subject_kind = ${kinds[subject.kind]} AND subject = ${feltParam('subject')}`;
  const first = rangeOf(lo);
  const last = rangeOf(hi);
  // Ranges that the bounds cut are counted by height.
  const cut = [
    ...(lo % HEIGHT_RANGE === 0 ? [] : [first]),
    ...((hi + 1) % HEIGHT_RANGE === 0 || hi >= MAX_HEIGHT ? [] : [last]),
  ];
  const whole = `SELECT range AS bucket, transfers AS n FROM ${tables.table('transfer_counts')} FINAL
    WHERE ${where} AND range BETWEEN {first:UInt32} AND {last:UInt32} AND range NOT IN {cut:Array(UInt32)}`;
  const parts = `SELECT range AS bucket, sum(transfers) AS n FROM ${tables.table('transfer_counts_by_block')} FINAL
    WHERE range IN {cut:Array(UInt32)} AND ${where} AND block BETWEEN {lo:UInt32} AND {hi:UInt32} GROUP BY range`;
  const params = { subject: feltHex(subject.felt), lo, hi, first, last, cut, skip, need };
  const buckets = cut.length === 0 ? whole : `${whole} UNION ALL ${parts}`;
  if (need === 0) return { total: await totalOf(clickhouse, buckets, params), found: null };
  const [ranges] = await clickhouse.rows(
    {
      name: 'transfer-counts.ranges',
      sql: windowSql(buckets, order),
      row: windowRow,
    },
    params,
    { settings },
  );
  if (ranges === undefined || ranges.hits === 0) return { total: ranges?.total ?? 0, found: null };
  const found: RowsFound = {
    lo: Math.max(lo, heightsOf(ranges.first).from),
    hi: Math.min(hi, heightsOf(ranges.last).to),
    skip: skip - ranges.before,
    rows: ranges.inside,
  };
  if (found.rows <= WIDE_WINDOW_ROWS) return { total: ranges.total, found };

  // Ranges between the first and the last have few rows each, so this reads few rows, too.
  const heights = `SELECT block AS bucket, transfers AS n FROM ${tables.table('transfer_counts_by_block')} FINAL
    WHERE range BETWEEN {first:UInt32} AND {last:UInt32} AND ${where} AND block BETWEEN {lo:UInt32} AND {hi:UInt32}`;
  const [blocks] = await clickhouse.rows(
    { name: 'transfer-counts.heights', sql: windowSql(heights, order), row: windowRow },
    { ...params, first: ranges.first, last: ranges.last, lo: found.lo, hi: found.hi, skip: found.skip },
    { settings },
  );
  if (blocks === undefined || blocks.hits === 0) return { total: ranges.total, found };
  return {
    total: ranges.total,
    found: { lo: blocks.first, hi: blocks.last, skip: found.skip - blocks.before, rows: blocks.inside },
  };
}

/** The number of rows in the buckets: takes a third of the time of finding a window. */
async function totalOf(clickhouse: ClickHouse, buckets: string, params: Params): Promise<number> {
  const sql = `SELECT sum(n) AS total FROM (${buckets})`;
  const [sum] = await clickhouse.rows({ name: 'transfer-counts.total', sql, row: sumRow }, params, {
    settings,
  });
  return sum?.total ?? 0;
}
