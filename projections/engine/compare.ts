import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { HEIGHT_RANGE } from '../../schemas/topics.ts';
import { HOUR_RANGE } from '../streams.ts';
import { MAX_UINT32, ascendingSql, descending } from '../descending.ts';

/** Two tables of one shape, such as a build's and its shadow's. */
export interface TablePair {
  /** The placeholder by which both are known. */
  readonly name: string;
  readonly ours: string;
  readonly theirs: string;
}

/** What two tables have in one bucket: a range of heights or of hours, or everything where the table knows neither. */
export interface BucketDifference {
  readonly bucket: number;
  /** The bucket as a person reads it. */
  readonly where: string;
  readonly ours: BucketSum;
  readonly theirs: BucketSum;
}
interface BucketSum {
  readonly rows: number;
  readonly checksum: string;
}

export interface Comparison {
  readonly name: string;
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
  readonly kind: 'missing' | 'extra' | 'different';
  /** The sorting key, or the primary key, as text. */
  readonly key: string;
  /** The height that the row is of; null where it is of a whole range, or of none. */
  readonly height: number | null;
}

interface Limits {
  readonly buckets?: readonly number[];
  readonly heights?: Heights;
}

const NOTHING: BucketSum = { rows: 0, checksum: '0' };

/** What can be said of a table's shape. `bucket` is an expression over its columns. */
interface Shape {
  readonly columns: readonly string[];
  readonly key: readonly Column[];
  readonly bucket: string;
  nameOf(bucket: number): string;
  /** The height that a row is of; null where a row is of a whole range, or of none. */
  readonly height: 'block_desc' | 'block' | null;
}

const columnRow = z.object({ name: z.string(), type: z.string(), isKey: z.coerce.boolean() });
type Column = z.infer<typeof columnRow>;
const bucketRow = z.object({ bucket: z.coerce.number(), rows: z.coerce.number(), checksum: z.string() });
const keyRow = z.object({ key: z.string(), height: z.number().nullable(), sides: z.coerce.number() });

/** Reading both tables in step with everything else: one thread, and rows merged as they are read. */
const settings = { max_threads: 1 } as const;

/**
 * Compares two ClickHouse tables bucket by bucket: how many rows can be queried, and the sum of their hashes. The
 * version of a derived row tells in which batch it was last recomputed, and is left out.
 */
export async function compareTables(
  clickhouse: Pick<ClickHouse, 'rows'>,
  pair: TablePair,
  options: { readonly isDerived: boolean; readonly buckets?: readonly number[]; readonly heights?: Heights },
): Promise<Comparison> {
  const shape = await commonShape(clickhouse, pair, options.isDerived);
  const [ours, theirs] = [
    await bucketSums(clickhouse, pair.ours, shape, options),
    await bucketSums(clickhouse, pair.theirs, shape, options),
  ];
  const differing = [...new Set([...ours.keys(), ...theirs.keys()])]
    .map((bucket) => ({
      bucket,
      where: shape.nameOf(bucket),
      ours: ours.get(bucket) ?? NOTHING,
      theirs: theirs.get(bucket) ?? NOTHING,
    }))
    .filter((one) => one.ours.rows !== one.theirs.rows || one.ours.checksum !== one.theirs.checksum)
    .toSorted((a, b) => a.bucket - b.bucket);
  return { name: pair.name, rows: [...theirs.values()].reduce((sum, { rows }) => sum + rows, 0), differing };
}

/** The rows by which two tables differ in some buckets, as many as `limit`. `missing`: ours does not have it. */
export async function differingRows(
  clickhouse: Pick<ClickHouse, 'rows'>,
  pair: TablePair,
  options: {
    readonly isDerived: boolean;
    readonly buckets: readonly number[];
    readonly heights?: Heights;
    readonly limit: number;
  },
): Promise<RowDifference[]> {
  const shape = await commonShape(clickhouse, pair, options.isDerived);
  const key = shape.key.map(({ name }) => name);
  const side = (table: string, number: 1 | 2): string =>
    `SELECT ${key.join(', ')}, cityHash64(${shape.columns.join(', ')}) AS row_hash, ${number} AS side
     FROM ${table} FINAL ${within(shape, options)}`;
  const shown = shape.key.map(readable).join(", ' ', ");
  const height = { block_desc: `${ascendingSql('block_desc')}`, block: 'toUInt32(block)' };
  const of = shape.height === null ? 'NULL' : height[shape.height];
  const sql = `SELECT concat(${shown}) AS key, ${of} AS height, if(max(row_hash) != min(row_hash), 3, max(side)) AS sides
    FROM (${side(pair.ours, 1)} UNION ALL ${side(pair.theirs, 2)})
    GROUP BY ${key.join(', ')} HAVING count() != 2 OR max(row_hash) != min(row_hash)
    ORDER BY ${key.join(', ')} LIMIT {limit:UInt32}`;
  const found = await clickhouse.rows(
    { name: 'compare.rows', sql, row: keyRow },
    { limit: options.limit },
    { settings },
  );
  const kinds = { 1: 'extra', 2: 'missing' } as const;
  return found.map(({ sides, ...row }) => ({
    ...row,
    kind: sides === 1 || sides === 2 ? kinds[sides] : 'different',
  }));
}

async function bucketSums(
  clickhouse: Pick<ClickHouse, 'rows'>,
  table: string,
  shape: Shape,
  limits: Limits,
): Promise<Map<number, BucketSum>> {
  const sql = `SELECT ${shape.bucket} AS bucket, count() AS rows,
      toString(sum(cityHash64(${shape.columns.join(', ')}))) AS checksum
    FROM ${table} FINAL ${within(shape, limits)} GROUP BY bucket`;
  const found = await clickhouse.rows({ name: 'compare.buckets', sql, row: bucketRow }, {}, { settings });
  return new Map(found.map(({ bucket: number, rows, checksum }) => [number, { rows, checksum }]));
}

/**
 * Keeps to some buckets, and to some heights where the table knows them. The condition is on columns of the key alone,
 * which all versions of a row share, so it may be met before versions are merged, and the key's order can be used.
 */
export function within({ bucket, height }: Shape, { buckets, heights }: Limits): string {
  if (buckets === undefined && (heights === undefined || height === null)) return '';
  if (buckets?.length === 0) return 'WHERE false';
  if (height === null) return `PREWHERE ${bucket} IN (${(buckets ?? []).join(', ')})`;
  const spans: { first: number; last: number }[] = [];
  if (buckets === undefined) spans.push({ first: 0, last: Math.floor(MAX_UINT32 / HEIGHT_RANGE) });
  for (const number of (buckets ?? []).toSorted((a, b) => a - b)) {
    const span = spans.at(-1);
    if (span !== undefined && number <= span.last + 1) span.last = number;
    else spans.push({ first: number, last: number });
  }
  const { from, to } = heights ?? { from: 0, to: MAX_UINT32 };
  const conditions = spans.map(({ first, last }) => {
    const [low, high] = [Math.max(from, first * HEIGHT_RANGE), Math.min(to, (last + 1) * HEIGHT_RANGE - 1)];
    return height === 'block'
      ? `block BETWEEN ${low} AND ${high}`
      : `block_desc BETWEEN ${descending(high)} AND ${descending(low)}`;
  });
  return `PREWHERE ${conditions.join(' OR ')}`;
}

/** The columns that both tables have: of two versions of a projection, what they have in common. */
export async function commonShape(
  clickhouse: Pick<ClickHouse, 'rows'>,
  { ours, theirs }: TablePair,
  isDerived: boolean,
): Promise<Shape> {
  const [mine, others] = [await columnsOf(clickhouse, ours), await columnsOf(clickhouse, theirs)];
  const shared = new Set(others.map(({ name }) => name));
  const common = mine.filter(({ name }) => shared.has(name) && !(isDerived && name === 'seq'));
  const columns = common.map(({ name }) => name);
  const height = (['block_desc', 'block'] as const).find((name) => columns.includes(name)) ?? null;
  const by = (height ?? (['range', 'hour'] as const).find((name) => columns.includes(name))) || 'nothing';
  const heights = (bucket: number): string =>
    `heights ${bucket * HEIGHT_RANGE} to ${(bucket + 1) * HEIGHT_RANGE - 1}`;
  const buckets = {
    block_desc: { bucket: `intDiv(${ascendingSql('block_desc')}, ${HEIGHT_RANGE})`, nameOf: heights },
    block: { bucket: `intDiv(block, ${HEIGHT_RANGE})`, nameOf: heights },
    range: { bucket: 'range', nameOf: heights },
    hour: {
      bucket: `intDiv(hour, ${HOUR_RANGE})`,
      nameOf: (bucket: number): string => `hours from ${hourName(bucket)} to before ${hourName(bucket + 1)}`,
    },
    nothing: { bucket: 'toUInt32(0)', nameOf: (): string => 'all rows' },
  };
  return { columns, key: common.filter(({ isKey }) => isKey), ...buckets[by], height };
}

function hourName(bucket: number): string {
  return new Date(bucket * HOUR_RANGE * 3_600_000).toISOString();
}

async function columnsOf(clickhouse: Pick<ClickHouse, 'rows'>, table: string): Promise<Column[]> {
  const sql = `SELECT name, type, is_in_sorting_key AS isKey FROM system.columns
    WHERE database = currentDatabase() AND table = {table:String} ORDER BY position`;
  return await clickhouse.rows({ name: 'compare.columns', sql, row: columnRow }, { table });
}

/** A column of a key as a person reads it. */
function readable({ name, type }: Column): string {
  if (name.endsWith('_desc')) return `'${name.slice(0, -5)}=', toString(${ascendingSql(name)})`;
  return `'${name}=', ${type === 'FixedString(32)' ? `'0x', lower(hex(${name}))` : `toString(${name})`}`;
}

/**
 * Compares the tables of two Postgres schemas, whole: differing rows by their text, as many as `limit` a table.
 * `missing`: ours does not have it.
 */
export async function compareSchemas(
  db: Sql,
  ours: string,
  theirs: string,
  limit: number,
): Promise<(Comparison & { readonly samples: readonly RowDifference[] })[]> {
  const tables = await sqlRows(
    db,
    z.object({ name: z.string(), columns: z.array(z.string()) }),
    `SELECT a.table_name AS name, array_agg(a.column_name::text ORDER BY a.ordinal_position) AS columns
     FROM information_schema.columns a
     JOIN information_schema.columns b USING (table_name, column_name)
     WHERE a.table_schema = $1 AND b.table_schema = $2 GROUP BY a.table_name ORDER BY a.table_name`,
    [ours, theirs],
  );
  const comparisons = [];
  for (const { name, columns } of tables) {
    const list = columns.map((column) => `"${column}"`).join(', ');
    const row = `(SELECT r FROM (SELECT ${list}) AS r)::text`;
    const sums = await sqlRows(
      db,
      z.object({ rows: z.number(), checksum: z.string() }),
      [ours, theirs]
        .map(
          (schema, at) =>
            `SELECT ${at} AS side, count(*) AS rows, coalesce(sum(hashtextextended(${row}, 0)::numeric), 0)::text AS checksum FROM ${schema}."${name}"`,
        )
        .join(' UNION ALL ')
        .concat(' ORDER BY side'),
    );
    const [mine = NOTHING, other = NOTHING] = sums;
    const isEqual = mine.rows === other.rows && mine.checksum === other.checksum;
    const side = (schema: string): string => `SELECT ${row} AS key FROM ${schema}."${name}"`;
    const samples = isEqual
      ? []
      : await sqlRows(
          db,
          z.object({ kind: z.enum(['missing', 'extra']), key: z.string() }),
          `(SELECT 'extra' AS kind, key FROM (${side(ours)} EXCEPT ${side(theirs)}) AS e LIMIT $1)
           UNION ALL (SELECT 'missing', key FROM (${side(theirs)} EXCEPT ${side(ours)}) AS m LIMIT $1)`,
          [limit],
        );
    comparisons.push({
      name,
      rows: other.rows,
      differing: isEqual ? [] : [{ bucket: 0, where: 'all rows', ours: mine, theirs: other }],
      samples: samples.map((row) => ({ ...row, height: null })),
    });
  }
  return comparisons;
}
