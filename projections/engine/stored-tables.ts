import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import type { Projection } from '../define.ts';
import type { Build } from './builds.ts';

const countRow = z.object({ n: z.coerce.number() });

/** False: ClickHouse has lost the table of a build, or a drop of the build was killed. */
export async function hasTable(clickhouse: RowReader, table: string): Promise<boolean> {
  const sql =
    'SELECT count() AS n FROM system.tables WHERE database = currentDatabase() AND name = {table:String}';
  const [found] = await clickhouse.rows({ name: 'builds.table', sql, row: countRow }, { table });
  return found?.n === 1;
}

/** A table, or the schema, that the stores do not have of a build; null: none. */
export async function lostTable(
  { clickhouse, pool }: { readonly clickhouse: RowReader; readonly pool: Sql },
  { kind }: Projection,
  { names }: Build,
): Promise<string | null> {
  for (const name of Object.values(names)) {
    const exists = kind === 'postgres' ? await hasSchema(pool, name) : await hasTable(clickhouse, name);
    if (!exists) return name;
  }
  return null;
}

async function hasSchema(pool: Sql, schema: string): Promise<boolean> {
  const sql = 'SELECT FROM information_schema.schemata WHERE schema_name = $1';
  return (await pool.query(sql, [schema])).rowCount === 1;
}
