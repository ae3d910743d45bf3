import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { linkedBlocks } from '../../projections/indexed-blocks/queries.ts';
import { parentsOfReverted } from '../../projections/reverted-blocks/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import type { Felt } from '../../schemas/felt.ts';

export interface BlockId {
  readonly height: number;
  readonly hash: Felt;
}

/** The blocks that a client has to drop: from the lowest to the highest. */
export interface Undo {
  /** The newest block that it keeps; null: none. */
  readonly lastValid: BlockId | null;
  readonly from: number;
  readonly to: number;
  /** Of the dropped blocks, in the order of their heights. */
  readonly hashes: readonly Felt[];
}

/** Heights that are read at a time. */
const STEP = 1024;

/**
 * What separates a client whose newest block is `newest` from the indexed chain.
 *
 * @param first the lowest height of the index
 * @returns null if the block is indexed, `unknown` if it neither is nor was
 */
export async function findUndo(
  clickhouse: Pick<ClickHouse, 'rows'>,
  tables: Pick<ServedBuilds, 'table'>,
  newest: BlockId,
  first: number,
): Promise<Undo | 'unknown' | null> {
  const hashes: Felt[] = [];
  let block: BlockId = newest;
  while (block.height >= first) {
    const heights = { from: Math.max(first, block.height - STEP + 1), to: block.height };
    // In this order: of a block that is no longer indexed, the revert can be read.
    const indexed = await linkedBlocks(clickhouse, tables, heights);
    const byHeight = new Map(indexed.map(({ height, hash }) => [height, hash]));
    const parents = await parentsOfReverted(clickhouse, tables, heights);
    for (; block.height >= heights.from;) {
      if (byHeight.get(block.height) === block.hash) {
        return hashes.length === 0 ? null : undoOf(newest, hashes, block);
      }
      const parent = parents.get(block.hash);
      if (parent === undefined) return 'unknown';
      hashes.push(block.hash);
      block = { height: block.height - 1, hash: parent };
    }
  }
  return hashes.length === 0 ? 'unknown' : undoOf(newest, hashes, null);
}

function undoOf(newest: BlockId, newestFirst: readonly Felt[], lastValid: BlockId | null): Undo {
  return {
    lastValid,
    from: newest.height - newestFirst.length + 1,
    to: newest.height,
    hashes: newestFirst.toReversed(),
  };
}
