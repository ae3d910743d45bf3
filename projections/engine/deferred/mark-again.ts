import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import type { DeferredProjection } from '../../define.ts';
import { descending } from '../../descending.ts';
import { markAgainSql } from '../../due-blocks.ts';
import type { Heights } from '../compare.ts';
import { servedBuild } from '../builds.ts';

/** Makes blocks due again whose source tables were changed without a message of the log, as by a repair. */
export async function markAgain(
  { clickhouse, pool }: { readonly clickhouse: Pick<ClickHouse, 'command'>; readonly pool: Sql },
  projections: readonly DeferredProjection[],
  { from, to }: Heights,
): Promise<void> {
  for (const projection of projections) {
    const table = (await servedBuild(pool, projection))?.names[projection.deferred.due];
    if (table === undefined) continue;
    await clickhouse.command(markAgainSql(table), {
      params: { newest: descending(to), oldest: descending(from) },
    });
  }
}
