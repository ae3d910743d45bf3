import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { blocksAt, newestRun } from '../../projections/indexed-blocks/queries.ts';
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
/** Blocks cached per state: some hundred kB. */
const MAX_CACHED_BLOCKS = 1000;

export interface CoverageReader {
  /** null before the first block. `isFresh` bypasses the cache. */
  read(clickhouse: ClickHouse, served: ServedBuilds, isFresh?: boolean): Promise<Coverage | null>;
  /** The indexed blocks at these heights, by height. */
  blocks(
    clickhouse: ClickHouse,
    served: ServedBuilds,
    heights: readonly number[],
  ): Promise<ReadonlyMap<number, IndexedBlock>>;
}

interface Cached {
  readonly state: string;
  readonly until: number;
  coverage: Coverage | null;
  readonly blocks: Map<number, IndexedBlock>;
}

/**
 * Caches the indexed range and blocks; requests that see the same state of the read models share them.
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
      last = { state, until: now() + MAX_AGE_MS, coverage: null, blocks: new Map() };
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
    async blocks(clickhouse, served, heights) {
      const cached = cacheOf(served);
      const found = new Map<number, IndexedBlock>();
      const others = heights.filter((height) => {
        const block = cached?.blocks.get(height);
        if (block !== undefined) found.set(height, block);
        return block === undefined;
      });
      for (const [height, block] of await blocksAt(clickhouse, served, others)) {
        found.set(height, block);
        if (cached !== null && cached.blocks.size < MAX_CACHED_BLOCKS) cached.blocks.set(height, block);
      }
      return found;
    },
  };
}
