import { createHash } from 'node:crypto';

import type { Sql } from '../../infra/postgres/client.ts';
import type { ClickHouseFor, ReadClassName } from '../http/clickhouse.ts';
import type { RefreshBus } from '../commands/refresh.ts';
import type { RequestInfo } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { createCoverageReader } from './coverage.ts';
import type { BalanceDeps } from './current.ts';

/** Returns the dependencies of balances for one request; concurrent requests share the cached indexed range. */
export type BalanceDepsFor = (
  served: ServedBuilds,
  request: RequestInfo,
  readClass?: ReadClassName,
) => BalanceDeps;

export function createBalanceDeps({
  clickhouseFor,
  pool,
  refreshes,
  now,
}: {
  readonly clickhouseFor: ClickHouseFor;
  /** Read-only. */
  readonly pool: Sql;
  readonly refreshes: RefreshBus;
  /** Unix milliseconds. */
  readonly now: () => number;
}): BalanceDepsFor {
  const coverage = createCoverageReader(now);
  return (served, request, readClass = 'page') => ({
    clickhouse: clickhouseFor(request, { readClass }),
    pool,
    served,
    coverage,
    refreshes,
    now,
    signal: request.signal,
    caller: createHash('sha256').update(request.caller().name).digest('hex').slice(0, 16),
  });
}
