import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';

const countRow = z.object({ n: z.coerce.number() });

/** False: ClickHouse has lost the table of a build, or a drop of the build was killed. */
export async function hasTable(clickhouse: Pick<ClickHouse, 'rows'>, table: string): Promise<boolean> {
  const sql =
    'SELECT count() AS n FROM system.tables WHERE database = currentDatabase() AND name = {table:String}';
  const [found] = await clickhouse.rows({ name: 'builds.table', sql, row: countRow }, { table });
  return found?.n === 1;
}
