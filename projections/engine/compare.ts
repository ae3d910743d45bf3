import { z } from 'zod';

import type { Params, RowReader } from '../../infra/clickhouse/client.ts';
import { HEIGHT_RANGE, heightsOf, rangeOf } from '../../schemas/topics.ts';
import { HOUR_RANGE } from '../streams.ts';
import { MAX_UINT32, ascendingSql, descending } from '../descending.ts';

/** Two tables of one projection: `ours` is the table of the served build, `theirs` what the log says. */
export interface TablePair {
  /** The table's placeholder. */
  readonly name: string;
  readonly ours: string;
  readonly theirs: string;
  readonly isDerived: boolean;
}

/** What two tables hold in one bucket, which is a range of heights or of hours. */
export interface BucketDifference {
  readonly bucket: number;
  /** The bucket as a person reads it. */
  readonly where: string;
  readonly ours: Sum;
  readonly theirs: Sum;
}

/** The number of rows of a table or bucket, and a checksum of them. */
export const sumRow = z.object({ rows: z.coerce.number(), checksum: z.string() });
export type Sum = z.infer<typeof sumRow>;
export const isSameSum = (a: Sum, b: Sum): boolean => a.rows === b.rows && a.checksum === b.checksum;

export interface TableComparison {
  /** Rows of `theirs`. */
  readonly rows: number;
  readonly differing: readonly BucketDifference[];
}

/** Both inclusive. */
export interface Heights {
  readonly from: number;
  readonly to: number;
}

/** One row that only one table has, or that has other values in each. */
export interface RowDifference {
  /** `missing`: ours does not have it. */
  readonly kind: 'missing' | 'extra' | 'different';
  /** The sorting key, or the primary key of PostgreSQL, as text. */
  readonly key: string;
  /** The block that the row belongs to; null for a row of several blocks, or of none. */
  readonly height: number | null;
}

/** Part of a table. Heights that begin or end within a range take the whole range of a table that has one row a range. */
interface Limits {
  readonly buckets?: readonly number[];
  readonly heights?: Heights;
}

/** SQL of a condition and its parameters; null: every row. */
interface Condition {
  readonly sql: string | null;
  readonly params: Params;
}

export const NO_ROWS: Sum = { rows: 0, checksum: '0' };

interface Shape {
  readonly columns: readonly string[];
  readonly key: readonly Column[];
  /** SQL of the bucket that a row belongs to. */
  readonly bucket: string;
  nameOf(bucket: number): string;
  /** The column of the height that a row belongs to; null where a row belongs to a whole range, or to an hour. */
  readonly height: 'block_desc' | 'block' | null;
}

const columnRow = z.object({ name: z.string(), type: z.string(), isKey: z.coerce.boolean() });
type Column = z.infer<typeof columnRow>;
const bucketRow = sumRow.extend({ bucket: z.coerce.number() });
const keyRow = z.object({ key: z.string(), height: z.number().nullable(), sides: z.coerce.number() });

/** One thread, so that a comparison takes little from writers and readers. */
const settings = { max_threads: 1 } as const;

/**
 * Compares two ClickHouse tables bucket by bucket: the number of visible rows, and the sum of their hashes. The version
 * of a derived row depends on how messages were batched, and is not compared.
 */
export async function compareTables(
  clickhouse: RowReader,
  pair: TablePair,
  limits: Limits,
): Promise<TableComparison> {
  const shape = await commonShape(clickhouse, pair);
  const ours = await bucketSums(clickhouse, pair.ours, shape, limits);
  const theirs = await bucketSums(clickhouse, pair.theirs, shape, limits);
  const differing = [...new Set([...ours.keys(), ...theirs.keys()])]
    .map((bucket) => ({
      bucket,
      where: shape.nameOf(bucket),
      ours: ours.get(bucket) ?? NO_ROWS,
      theirs: theirs.get(bucket) ?? NO_ROWS,
    }))
    .filter((one) => !isSameSum(one.ours, one.theirs))
    .toSorted((a, b) => a.bucket - b.bucket);
  return { rows: [...theirs.values()].reduce((sum, { rows }) => sum + rows, 0), differing };
}

/** The rows by which two tables differ in some buckets, at most `limit`. */
export async function differingRows(
  clickhouse: RowReader,
  pair: TablePair,
  { limit, ...limits }: Limits & { readonly limit: number },
): Promise<RowDifference[]> {
  const shape = await commonShape(clickhouse, pair);
  const key = shape.key.map(({ name }) => name).join(', ');
  const { sql: condition, params } = within(shape, limits);
  const side = (table: string, number: 1 | 2): string =>
    `SELECT ${key}, cityHash64(${shape.columns.join(', ')}) AS row_hash, ${number} AS side
     FROM ${table} FINAL ${prewhere(condition)}`;
  const shown = shape.key.map(readable).join(", ' ', ");
  const height = { block_desc: ascendingSql('block_desc'), block: 'toUInt32(block)' };
  const sql = `SELECT concat(${shown}) AS key, ${shape.height === null ? 'NULL' : height[shape.height]} AS height,
      if(max(row_hash) != min(row_hash), 3, max(side)) AS sides
    FROM (${side(pair.ours, 1)} UNION ALL ${side(pair.theirs, 2)})
    GROUP BY ${key} HAVING count() != 2 OR max(row_hash) != min(row_hash)
    ORDER BY ${key} LIMIT {limit:UInt32}`;
  const query = { name: 'compare.rows', sql, row: keyRow };
  const found = await clickhouse.rows(query, { ...params, limit }, { settings });
  const kinds = { 1: 'extra', 2: 'missing' } as const;
  return found.map(({ sides, ...row }) => ({
    ...row,
    kind: sides === 1 || sides === 2 ? kinds[sides] : 'different',
  }));
}

async function bucketSums(
  clickhouse: RowReader,
  table: string,
  shape: Shape,
  limits: Limits,
): Promise<Map<number, Sum>> {
  const { sql: condition, params } = within(shape, limits);
  const sql = `SELECT ${shape.bucket} AS bucket, count() AS rows,
      toString(sum(cityHash64(${shape.columns.join(', ')}))) AS checksum
    FROM ${table} FINAL ${prewhere(condition)} GROUP BY bucket`;
  const found = await clickhouse.rows({ name: 'compare.buckets', sql, row: bucketRow }, params, { settings });
  return new Map(found.map(({ bucket, ...sum }) => [bucket, sum]));
}

/** The condition is on columns of the key, which all versions of a row share: it holds before versions are merged, too. */
export function prewhere(condition: string | null): string {
  return condition === null ? '' : `PREWHERE ${condition}`;
}

/** Limits a query to some buckets (default: those of the heights) and heights (default: all). */
export function within({ bucket, height }: Shape, { buckets, heights }: Limits): Condition {
  if (buckets === undefined && heights === undefined) return { sql: null, params: {} };
  const { from, to } = heights ?? { from: 0, to: MAX_UINT32 };
  const params: Record<string, number> = {};
  const spans = buckets === undefined ? [{ first: rangeOf(from), last: rangeOf(to) }] : consecutive(buckets);
  const conditions = spans.map(({ first, last }, index) => {
    const low = height === null ? first : Math.max(from, heightsOf(first).from);
    const high = height === null ? last : Math.min(to, heightsOf(last).to);
    params[`low${index}`] = height === 'block_desc' ? descending(high) : low;
    params[`high${index}`] = height === 'block_desc' ? descending(low) : high;
    return `${height ?? bucket} BETWEEN {low${index}:UInt32} AND {high${index}:UInt32}`;
  });
  return { sql: conditions.join(' OR ') || 'false', params };
}

/** Runs of consecutive numbers, which keep a condition short. */
function consecutive(numbers: readonly number[]): { first: number; last: number }[] {
  const runs: { first: number; last: number }[] = [];
  for (const number of numbers.toSorted((a, b) => a - b)) {
    const run = runs.at(-1);
    if (run !== undefined && number <= run.last + 1) run.last = number;
    else runs.push({ first: number, last: number });
  }
  return runs;
}

/** The columns that both tables have: two versions of a projection are compared by what they have in common. */
export async function commonShape(
  clickhouse: RowReader,
  { ours, theirs, isDerived }: TablePair,
): Promise<Shape> {
  const others = new Set((await columnsOf(clickhouse, theirs)).map(({ name }) => name));
  const common = (await columnsOf(clickhouse, ours)).filter(
    ({ name }) => others.has(name) && !(isDerived && name === 'seq'),
  );
  const columns = common.map(({ name }) => name);
  const key = common.filter(({ isKey }) => isKey);
  const heights = (bucket: number): string => {
    const { from, to } = heightsOf(bucket);
    return `heights ${from} to ${to}`;
  };
  const height = (['block_desc', 'block'] as const).find((name) => columns.includes(name)) ?? null;
  if (height !== null) {
    const number = height === 'block' ? 'block' : ascendingSql('block_desc');
    return { columns, key, bucket: `intDiv(${number}, ${HEIGHT_RANGE})`, nameOf: heights, height };
  }
  if (columns.includes('range')) return { columns, key, bucket: 'range', nameOf: heights, height };
  const hours = (bucket: number): string =>
    `hours from ${hourName(bucket)} to before ${hourName(bucket + 1)}`;
  return { columns, key, bucket: `intDiv(hour, ${HOUR_RANGE})`, nameOf: hours, height };
}

function hourName(bucket: number): string {
  return new Date(bucket * HOUR_RANGE * 3_600_000).toISOString();
}

async function columnsOf(clickhouse: RowReader, table: string): Promise<Column[]> {
  const sql = `SELECT name, type, is_in_sorting_key AS isKey FROM system.columns
    WHERE database = currentDatabase() AND table = {table:String} ORDER BY position`;
  return await clickhouse.rows({ name: 'compare.columns', sql, row: columnRow }, { table });
}

/** SQL of a key column as a person reads it. */
function readable({ name, type }: Column): string {
  if (name.endsWith('_desc')) return `'${name.slice(0, -5)}=', toString(${ascendingSql(name)})`;
  return `'${name}=', ${type === 'FixedString(32)' ? `'0x', lower(hex(${name}))` : `toString(${name})`}`;
}
