import { z } from 'zod';

import type { StoredBuild } from '../../../projections/engine/builds.ts';
import type { ChQuery, RowReader } from '../../clickhouse/client.ts';
import { sqlRows } from '../../postgres/client.ts';
import type { Sql } from '../../postgres/client.ts';

/** Size of a table on disk; ClickHouse counts replaced rows until it merges them away. */
export interface TableSize {
  readonly table: string;
  readonly rows: number;
  /** With its indexes. */
  readonly bytes: number;
}

const count = z.string().regex(/^\d+$/).transform(Number);
const partsOf: ChQuery<TableSize> = {
  name: 'build-sizes',
  // Every user may read `system.tables`, unlike `system.parts`.
  sql: `SELECT name AS table, toString(coalesce(total_rows, 0)) AS rows, toString(coalesce(total_bytes, 0)) AS bytes
    FROM system.tables WHERE database = currentDatabase() AND name IN {tables: Array(String)}`,
  row: z.object({ table: z.string(), rows: count, bytes: count }),
};
const postgresRow = z.object({ table: z.string(), rows: z.int(), bytes: z.int() });
const tableRow = z.object({ statement: z.string() });

/** The tables of one build, by name. */
export async function tableSizes(
  pool: Sql,
  clickhouse: RowReader,
  { names }: Pick<StoredBuild, 'names'>,
): Promise<TableSize[]> {
  const { schema, ...placeholders } = names;
  const found = schema === undefined ? [] : await postgresSizes(pool, schema);
  const tables = Object.values(placeholders);
  if (tables.length > 0) {
    const parts = new Map((await clickhouse.rows(partsOf, { tables })).map((one) => [one.table, one]));
    found.push(...tables.map((table) => parts.get(table) ?? { table, rows: 0, bytes: 0 }));
  }
  return found.toSorted((a, b) => (a.table < b.table ? -1 : 1));
}

/** Tables with more rows are estimated, by PostgreSQL's statistics: counting reads every row. */
const COUNTED_ROWS = 1_000_000;

async function postgresSizes(pool: Sql, schema: string): Promise<TableSize[]> {
  const tables = await sqlRows(
    pool,
    tableRow,
    `SELECT format('SELECT %L AS "table", %s AS rows, pg_total_relation_size(%s) AS bytes', relname,
       CASE WHEN reltuples > $2 THEN reltuples::bigint::text ELSE format('(SELECT count(*) FROM %s)', c.oid::regclass) END,
       c.oid) AS statement
     FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1 AND relkind = 'r'`,
    [schema, COUNTED_ROWS],
  );
  if (tables.length === 0) return [];
  return await sqlRows(pool, postgresRow, tables.map(({ statement }) => statement).join(' UNION ALL '));
}

/** Sums the sizes as a text, such as `12 rows, 3.4 MiB`. */
export function sizeText(sizes: readonly Omit<TableSize, 'table'>[]): string {
  const sum = (of: 'rows' | 'bytes'): number => sizes.reduce((total, one) => total + one[of], 0);
  let [amount, unit] = [sum('bytes') / 1024, 'KiB'];
  for (const larger of ['MiB', 'GiB', 'TiB']) {
    if (amount < 1024) break;
    [amount, unit] = [amount / 1024, larger];
  }
  return `${sum('rows')} rows, ${amount.toFixed(1)} ${unit}`;
}
