import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import type { DeferredProjection } from '../../define.ts';
import { descending } from '../../descending.ts';
import { markAgainSql } from '../../due-blocks.ts';
import type { Heights } from '../compare.ts';
import { listBuilds } from '../builds.ts';
import { hasTable } from '../stored-tables.ts';

/**
 * Makes blocks due again, in the served build and in shadow builds, whose source tables were changed without a message of the
 * log, as by a repair.
 */
export async function markAgain(
  { clickhouse, pool }: { readonly clickhouse: Pick<ClickHouse, 'command' | 'rows'>; readonly pool: Sql },
  projections: readonly DeferredProjection[],
  { from, to }: Heights,
): Promise<void> {
  for (const projection of projections) {
    for (const { state, names } of await listBuilds(pool, projection.name)) {
      const table = names[projection.deferred.due];
      if (state === 'retired' || table === undefined || !(await hasTable(clickhouse, table))) continue;
      await clickhouse.command(markAgainSql(table), {
        params: { newest: descending(to), oldest: descending(from) },
      });
    }
  }
}
