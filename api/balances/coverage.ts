import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { newestBlock, runStart } from '../../projections/indexed-blocks/queries.ts';
import type { IndexedBlock } from '../../projections/indexed-blocks/queries.ts';
import type { ServedBuilds } from '../route.ts';
import type { Run } from './math.ts';

/** The newest block and the run of indexed blocks that ends with it. */
export interface Coverage {
  readonly head: IndexedBlock;
  readonly run: Run;
}

/** What was found stays good while the read models have not moved, and never longer. */
const KEPT_MS = 1000;

export interface CoverageReader {
  /** null before the first block. `isFresh`: what was found before does not do. */
  read(clickhouse: ClickHouse, served: ServedBuilds, isFresh?: boolean): Promise<Coverage | null>;
}

/** Looks up what is indexed once for all requests that find the same state of the read models. */
export function createCoverageReader(now: () => number): CoverageReader {
  let kept: { state: string; until: number; found: Coverage } | null = null;
  return {
    async read(clickhouse, served, isFresh = false) {
      const { state } = served;
      if (!isFresh && kept !== null && kept.state === state && now() < kept.until) return kept.found;
      const head = await newestBlock(clickhouse, served);
      const start = head === null ? null : await runStart(clickhouse, served, head.height);
      // A head that a reorg took away meanwhile is looked for again by the next request.
      if (head === null || start === null) return null;
      const found = { head, run: { start, end: head.height } };
      if (state !== null) kept = { state, until: now() + KEPT_MS, found };
      return found;
    },
  };
}
