import { z } from 'zod';

import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import { sumRow } from '../compare.ts';
import type { RowDifference, Sum, TableComparison } from '../compare.ts';

/** A PostgreSQL schema, and the connection that reads it. */
interface Side {
  readonly db: Sql;
  readonly schema: string;
}

/** Rows are compared in so many buckets, by the hash of their key: only the rows of buckets that differ are read. */
const BUCKETS = 4096;

const tableRow = z.object({ name: z.string(), columns: z.array(z.string()), key: z.array(z.string()) });
const bucketRow = sumRow.extend({ bucket: z.number() });
const keyRow = z.object({ key: z.string(), hash: z.string() });

/**
 * Compares the tables of two PostgreSQL schemas, by the columns that both have. Names at most `limit` differing rows of each
 * table by their primary keys, because other columns hold secrets.
 */
export async function compareSchemas(
  ours: Side,
  theirs: Side,
  limit: number,
): Promise<(TableComparison & { readonly table: string; readonly samples: readonly RowDifference[] })[]> {
  const tables = await sqlRows(
    theirs.db,
    tableRow,
    `SELECT a.table_name AS name, array_agg(a.column_name::text ORDER BY a.ordinal_position) AS columns,
       coalesce(array_agg(a.column_name::text ORDER BY a.ordinal_position) FILTER (WHERE EXISTS (
         SELECT 1 FROM pg_index i JOIN pg_attribute c ON c.attrelid = i.indrelid AND c.attnum = ANY(i.indkey)
         WHERE i.indisprimary AND c.attname = a.column_name
           AND i.indrelid = format('%I.%I', a.table_schema, a.table_name)::regclass
       )), '{}') AS key
     FROM information_schema.columns a
     JOIN information_schema.columns b USING (table_name, column_name)
     WHERE a.table_schema = $1 AND b.table_schema = $2 GROUP BY a.table_name ORDER BY a.table_name`,
    [ours.schema, theirs.schema],
  );
  const comparisons = [];
  for (const { name: table, columns, key } of tables) {
    const rows = rowsOf(table, columns, key);
    const [mine, others] = [await bucketsOf(ours, rows), await bucketsOf(theirs, rows)];
    const differing = [...new Set([...mine.keys(), ...others.keys()])].filter(
      (bucket) => mine.get(bucket)?.checksum !== others.get(bucket)?.checksum,
    );
    const sums = { ours: sumOf(mine), theirs: sumOf(others) };
    const read = differing.slice(0, limit);
    const samples = differencesOf(await keysOf(ours, rows, read), await keysOf(theirs, rows, read));
    comparisons.push({
      table,
      rows: sums.theirs.rows,
      differing: differing.length === 0 ? [] : [{ bucket: 0, where: 'all rows', ...sums }],
      samples: samples.slice(0, limit),
    });
  }
  return comparisons;
}

/** SQL of a table's rows: primary key as text, bucket of the key, hash of the row. */
function rowsOf(
  table: string,
  columns: readonly string[],
  keyColumns: readonly string[],
): (schema: string) => string {
  const row = `(SELECT r FROM (SELECT ${columns.map((column) => `"${column}"`).join(', ')}) AS r)::text`;
  const key = keyColumns.map((column) => `'${column}=' || "${column}"`).join(` || ', ' || `);
  return (schema) =>
    `(SELECT key, (hashtextextended(key, 0) & ${BUCKETS - 1})::int AS bucket, hash FROM (
        SELECT ${key === '' ? `md5(${row})` : key} AS key, hashtextextended(${row}, 0) AS hash
        FROM ${schema}."${table}") AS keys) AS hashed`;
}

async function bucketsOf({ db, schema }: Side, rows: (schema: string) => string): Promise<Map<number, Sum>> {
  const sql = `SELECT bucket, count(*) AS rows, sum(hash)::text AS checksum FROM ${rows(schema)} GROUP BY 1`;
  const found = await sqlRows(db, bucketRow, sql);
  return new Map(found.map(({ bucket, ...sum }) => [bucket, sum]));
}

/** Primary key → hash of the row. */
async function keysOf(
  { db, schema }: Side,
  rows: (schema: string) => string,
  buckets: readonly number[],
): Promise<Map<string, string>> {
  if (buckets.length === 0) return new Map();
  const sql = `SELECT key, hash::text FROM ${rows(schema)} WHERE bucket = ANY($1) ORDER BY key`;
  const found = await sqlRows(db, keyRow, sql, [[...buckets]]);
  return new Map(found.map(({ key, hash }) => [key, hash]));
}

function differencesOf(
  ours: ReadonlyMap<string, string>,
  theirs: ReadonlyMap<string, string>,
): RowDifference[] {
  const kindOf = (key: string): RowDifference['kind'] =>
    !ours.has(key) ? 'missing' : theirs.has(key) ? 'different' : 'extra';
  return [...new Set([...ours.keys(), ...theirs.keys()])]
    .filter((key) => ours.get(key) !== theirs.get(key))
    .map((key) => ({ kind: kindOf(key), key, height: null }));
}

function sumOf(buckets: ReadonlyMap<number, Sum>): Sum {
  let [rows, checksum] = [0, 0n];
  for (const sum of buckets.values()) {
    rows += sum.rows;
    checksum += BigInt(sum.checksum);
  }
  return { rows, checksum: String(checksum) };
}
