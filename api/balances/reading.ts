import type { Sql } from '../../infra/postgres/client.ts';
import type { ClickHouseFor, ReadClassName } from '../http/clickhouse.ts';
import { refreshCaller } from '../commands/refresh.ts';
import type { RefreshBus } from '../commands/refresh.ts';
import type { RequestInfo } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { runStart } from '../../projections/indexed-blocks/queries.ts';
import type { AsOf } from '../http/as-of.ts';
import { createCoverageReader } from './coverage.ts';
import type { Coverage, CoverageReader } from './coverage.ts';
import type { BalanceDeps } from './current.ts';

/** Returns the dependencies of balances for one request; concurrent requests share the cached indexed range. */
export type BalanceDepsFor = (
  served: ServedBuilds,
  of: { readonly request: RequestInfo; readonly asOf: AsOf | null; readonly pool: Sql },
  readClass?: ReadClassName,
) => BalanceDeps;

export function createBalanceDeps({
  clickhouseFor,
  refreshes,
  indexedHeight,
  now,
}: {
  readonly clickhouseFor: ClickHouseFor;
  readonly refreshes: RefreshBus;
  /** The highest height that can be queried. */
  readonly indexedHeight: () => number | null;
  /** Unix milliseconds. */
  readonly now: () => number;
}): BalanceDepsFor {
  const cached = createCoverageReader(indexedHeight, now);
  return (served, { request, asOf, pool }, readClass = 'page') => ({
    clickhouse: clickhouseFor(request, { readClass }),
    pool,
    served,
    asOf,
    coverage: asOf === null ? cached : upTo(cached, asOf),
    refreshes,
    now: asOf === null ? now : () => asOf.timestamp * 1000,
    signal: request.signal,
    caller: refreshCaller(request),
  });
}

/** What was indexed when this block was the newest. */
function upTo(coverage: CoverageReader, block: AsOf): CoverageReader {
  let found: Promise<Coverage | null> | null = null;
  return {
    ...coverage,
    async read(clickhouse, served) {
      const find = async (): Promise<Coverage | null> => {
        const newest = (await coverage.read(clickhouse, served))?.run;
        const isInNewest = newest !== undefined && newest.start <= block.height && block.height <= newest.end;
        const start = isInNewest ? newest.start : await runStart(clickhouse, served, block.height);
        return start === null ? null : { head: block, run: { start, end: block.height } };
      };
      return await (found ??= find());
    },
  };
}
