import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { readsForRequest } from '../http/clickhouse.ts';
import type { RefreshBus } from '../commands/refresh.ts';
import type { RequestInfo } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { createCoverageReader } from './coverage.ts';
import type { BalanceDeps } from './current.ts';

/** Returns the dependencies of balances for one request; concurrent requests share the cached indexed range. */
export type BalanceDepsFor = (served: ServedBuilds, request: RequestInfo) => BalanceDeps;

export function createBalanceDeps({
  clickhouse,
  pool,
  refreshes,
  now,
}: {
  /** Read-only. */
  readonly clickhouse: ClickHouse;
  /** Read-only. */
  readonly pool: Sql;
  readonly refreshes: RefreshBus;
  /** Unix milliseconds. */
  readonly now: () => number;
}): BalanceDepsFor {
  const coverage = createCoverageReader(now);
  return (served, { signal }) => ({
    clickhouse: readsForRequest(signal, clickhouse),
    pool,
    served,
    coverage,
    refreshes,
    now,
    signal,
  });
}
