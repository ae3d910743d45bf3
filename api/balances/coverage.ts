import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { blocksAt, newestRun } from '../../projections/indexed-blocks/queries.ts';
import type { IndexedBlock } from '../../projections/indexed-blocks/queries.ts';
import type { ServedBuilds } from '../http/route.ts';
import type { IndexedRange } from '../../schemas/balance.ts';

/** The newest block and the run of indexed blocks that ends with it. */
export interface Coverage {
  readonly head: IndexedBlock;
  readonly run: IndexedRange;
}

/** What was found stays good while the read models have not moved, and never longer. */
const KEPT_MS = 1000;
/** Blocks that are remembered of one state: some hundred kB. */
const KEPT_BLOCKS = 1000;

export interface CoverageReader {
  /** null before the first block. `isFresh`: what was found before does not do. */
  read(clickhouse: ClickHouse, served: ServedBuilds, isFresh?: boolean): Promise<Coverage | null>;
  /** The blocks that are indexed at these heights, by height. */
  blocks(
    clickhouse: ClickHouse,
    served: ServedBuilds,
    heights: readonly number[],
  ): Promise<ReadonlyMap<number, IndexedBlock>>;
}

interface Kept {
  readonly state: string;
  readonly until: number;
  coverage: Coverage | null;
  readonly blocks: Map<number, IndexedBlock>;
}

/** Looks up what is indexed once for all requests that find the same state of the read models. */
export function createCoverageReader(now: () => number): CoverageReader {
  let last: Kept | null = null;
  /** What was found in this state; null where nothing may be kept. */
  const keptOf = ({ chainState: state = null }: ServedBuilds): Kept | null => {
    if (state === null) return null;
    if (last === null || last.state !== state || now() >= last.until)
      last = { state, until: now() + KEPT_MS, coverage: null, blocks: new Map() };
    return last;
  };
  return {
    async read(clickhouse, served, isFresh = false) {
      const kept = keptOf(served);
      if (!isFresh && kept !== null && kept.coverage !== null) return kept.coverage;
      const newest = await newestRun(clickhouse, served);
      // A head that a reorg took away meanwhile is looked for again by the next request.
      if (newest === null) return null;
      const { head, start } = newest;
      const found = { head, run: { start, end: head.height } };
      if (kept !== null) kept.coverage = found;
      return found;
    },
    async blocks(clickhouse, served, heights) {
      const kept = keptOf(served);
      const known = new Map<number, IndexedBlock>();
      const others = heights.filter((height) => {
        const block = kept?.blocks.get(height);
        if (block !== undefined) known.set(height, block);
        return block === undefined;
      });
      for (const [height, block] of await blocksAt(clickhouse, served, others)) {
        known.set(height, block);
        if (kept !== null && kept.blocks.size < KEPT_BLOCKS) kept.blocks.set(height, block);
      }
      return known;
    },
  };
}
