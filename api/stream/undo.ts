import type { RowReader } from '../../infra/clickhouse/client.ts';
import { linkedBlocks } from '../../projections/indexed-blocks/queries.ts';
import { revertedBetween } from '../../projections/reverted-blocks/queries.ts';
import type { ServedTables } from '../../projections/served.ts';
import type { Felt } from '../../schemas/felt.ts';

export interface BlockPoint {
  readonly height: number;
  readonly hash: Felt;
}

/** The blocks that a client has to drop: from the lowest to the highest. */
export interface Undo {
  /** The newest block that it keeps; null: none. */
  readonly lastValid: BlockPoint | null;
  readonly from: number;
  readonly to: number;
  /** Of the dropped blocks, in the order of their heights. */
  readonly hashes: readonly Felt[];
  /** Version of the revert of the highest one: another each time that a block is reverted. */
  readonly seq: number;
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
  clickhouse: RowReader,
  tables: ServedTables,
  newest: BlockPoint,
  first: number,
): Promise<Undo | 'unknown' | null> {
  const hashes: Felt[] = [];
  let block: BlockPoint = newest;
  let seq = 0;
  while (block.height >= first) {
    const heights = { from: Math.max(first, block.height - STEP + 1), to: block.height };
    // In this order: of a block that is no longer indexed, the revert can be read.
    const indexed = await linkedBlocks(clickhouse, tables, heights);
    const byHeight = new Map(indexed.map(({ height, hash }) => [height, hash]));
    const reverted = await revertedBetween(clickhouse, tables, heights);
    for (; block.height >= heights.from;) {
      if (byHeight.get(block.height) === block.hash) {
        return hashes.length === 0 ? null : undoOf(newest, hashes, block, seq);
      }
      const gone = reverted.get(block.hash);
      if (gone === undefined) return 'unknown';
      if (hashes.length === 0) ({ seq } = gone);
      hashes.push(block.hash);
      block = { height: block.height - 1, hash: gone.parent };
    }
  }
  return hashes.length === 0 ? 'unknown' : undoOf(newest, hashes, null, seq);
}

function undoOf(
  newest: BlockPoint,
  newestFirst: readonly Felt[],
  lastValid: BlockPoint | null,
  seq: number,
): Undo {
  return {
    lastValid,
    from: newest.height - newestFirst.length + 1,
    to: newest.height,
    hashes: newestFirst.toReversed(),
    seq,
  };
}
