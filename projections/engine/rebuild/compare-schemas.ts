import { z } from 'zod';

import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import type { Comparison, RowDifference } from '../compare.ts';

/** A PostgreSQL schema, and the connection that reads it. */
interface Side {
  readonly db: Sql;
  readonly schema: string;
}

/** Rows are compared in so many buckets, by their hash: only the rows of buckets that differ are read. */
const BUCKETS = 4096;

const tableRow = z.object({ name: z.string(), columns: z.array(z.string()) });
const bucketRow = z.object({ bucket: z.number(), rows: z.number(), checksum: z.string() });
type Sum = Omit<z.infer<typeof bucketRow>, 'bucket'>;
const keyRow = z.object({ key: z.string() });

/**
 * Compares the tables of two PostgreSQL schemas, by the columns that both have. Names differing rows by their text, at
 * most `limit` of each kind and table.
 */
export async function compareSchemas(
  ours: Side,
  theirs: Side,
  limit: number,
): Promise<(Comparison & { readonly table: string; readonly samples: readonly RowDifference[] })[]> {
  const tables = await sqlRows(
    theirs.db,
    tableRow,
    `SELECT a.table_name AS name, array_agg(a.column_name::text ORDER BY a.ordinal_position) AS columns
     FROM information_schema.columns a
     JOIN information_schema.columns b USING (table_name, column_name)
     WHERE a.table_schema = $1 AND b.table_schema = $2 GROUP BY a.table_name ORDER BY a.table_name`,
    [ours.schema, theirs.schema],
  );
  const comparisons = [];
  for (const { name: table, columns } of tables) {
    const rows = rowsOf(table, columns);
    const [mine, others] = [await bucketsOf(ours, rows), await bucketsOf(theirs, rows)];
    const differing = [...new Set([...mine.keys(), ...others.keys()])].filter(
      (bucket) => mine.get(bucket)?.checksum !== others.get(bucket)?.checksum,
    );
    const sums = { ours: sumOf(mine), theirs: sumOf(others) };
    const read = differing.slice(0, limit);
    const [extra, missing] = [await keysOf(ours, rows, read), await keysOf(theirs, rows, read)];
    const samples = [
      ...[...extra].filter((key) => !missing.has(key)).map((key) => ({ kind: 'extra', key }) as const),
      ...[...missing].filter((key) => !extra.has(key)).map((key) => ({ kind: 'missing', key }) as const),
    ];
    comparisons.push({
      table,
      rows: sums.theirs.rows,
      differing: differing.length === 0 ? [] : [{ bucket: 0, where: 'all rows', ...sums }],
      samples: samples.slice(0, limit).map((sample) => ({ ...sample, height: null })),
    });
  }
  return comparisons;
}

/** SQL of a table's rows as text, with the hash of each. */
function rowsOf(table: string, columns: readonly string[]): (schema: string) => string {
  const list = columns.map((column) => `"${column}"`).join(', ');
  return (schema) =>
    `(SELECT key, hashtextextended(key, 0) AS hash FROM (
        SELECT (SELECT r FROM (SELECT ${list}) AS r)::text AS key FROM ${schema}."${table}") AS keys) AS hashed`;
}

async function bucketsOf({ db, schema }: Side, rows: (schema: string) => string): Promise<Map<number, Sum>> {
  const sql = `SELECT (hash & $1::bigint)::int AS bucket, count(*) AS rows, sum(hash)::text AS checksum
    FROM ${rows(schema)} GROUP BY 1`;
  const found = await sqlRows(db, bucketRow, sql, [BUCKETS - 1]);
  return new Map(found.map(({ bucket, ...sum }) => [bucket, sum]));
}

async function keysOf(
  { db, schema }: Side,
  rows: (schema: string) => string,
  buckets: readonly number[],
): Promise<Set<string>> {
  if (buckets.length === 0) return new Set();
  const sql = `SELECT key FROM ${rows(schema)} WHERE (hash & $1::bigint)::int = ANY($2) ORDER BY key`;
  return new Set((await sqlRows(db, keyRow, sql, [BUCKETS - 1, [...buckets]])).map(({ key }) => key));
}

function sumOf(buckets: ReadonlyMap<number, Sum>): Sum {
  let [rows, checksum] = [0, 0n];
  for (const sum of buckets.values()) {
    rows += sum.rows;
    checksum += BigInt(sum.checksum);
  }
  return { rows, checksum: String(checksum) };
}
