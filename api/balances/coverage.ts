import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { newestRun } from '../../projections/indexed-blocks/queries.ts';
import type { IndexedBlock } from '../../projections/indexed-blocks/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import type { IndexedRange } from '../../schemas/balance.ts';

/** The newest indexed block and the run of indexed blocks that ends with it. */
export interface Coverage {
  readonly head: IndexedBlock;
  readonly run: IndexedRange;
}

/** Cached until block data changes, and at most this long. */
const MAX_AGE_MS = 1000;

export interface CoverageReader {
  /** null before the first block. `isFresh` bypasses the cache. */
  read(clickhouse: ClickHouse, served: ServedBuilds, isFresh?: boolean): Promise<Coverage | null>;
}

interface Cached {
  readonly state: string;
  readonly until: number;
  coverage: Coverage | null;
}

/**
 * Caches the indexed range; requests that see the same state of the read models share them.
 *
 * @param indexedHeight the height that answers say they hold: nothing that was read below it is shared
 */
export function createCoverageReader(indexedHeight: () => number | null, now: () => number): CoverageReader {
  let last: Cached | null = null;
  /** The cache of the request's state; null: nothing may be cached. */
  const cacheOf = ({ chainState }: ServedBuilds): Cached | null => {
    if (chainState === null) return null;
    const state = `${chainState} ${indexedHeight()}`;
    if (last === null || last.state !== state || now() >= last.until)
      last = { state, until: now() + MAX_AGE_MS, coverage: null };
    return last;
  };
  return {
    async read(clickhouse, served, isFresh = false) {
      const cached = cacheOf(served);
      if (!isFresh && cached !== null && cached.coverage !== null) return cached.coverage;
      const newest = await newestRun(clickhouse, served);
      // Also null if a reorg removed the head between two statements, so it is not cached.
      if (newest === null) return null;
      const { head, start } = newest;
      const found = { head, run: { start, end: head.height } };
      if (cached !== null) cached.coverage = found;
      return found;
    },
  };
}
