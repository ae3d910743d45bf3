import type { Felt } from '../../schemas/felt.ts';
import type { BlockPoint } from '../node/types.ts';
import type { Chunk, NewChunk } from './ports.ts';

export const LIVE = 'live';

export interface PlanInput {
  readonly existing: readonly Pick<Chunk, 'start' | 'end'>[];
  /** null: the height accepted on L1. */
  readonly indexFrom: number | null;
  /** null: nothing is accepted on L1 (a young chain, or a development node). */
  readonly l1: BlockPoint | null;
  readonly chunkBlocks: number;
}

/**
 * The chunks that are missing. At first: backfill from the first height to the one accepted on L1, and `live` above, so
 * that a reorg can only meet `live`. Later: the range below the lowest chunk, when the first height was lowered.
 */
export function planChunks({ existing, indexFrom, l1, chunkBlocks }: PlanInput): NewChunk[] {
  const lowest = existing.reduce<number | null>(
    (low, { start }) => (low === null ? start : Math.min(low, start)),
    null,
  );
  if (lowest !== null) {
    return indexFrom === null ? [] : backfillChunks(indexFrom, lowest - 1, chunkBlocks);
  }
  const first = indexFrom ?? l1?.height ?? 0;
  const liveStart = Math.max(first, (l1?.height ?? -1) + 1);
  const below: Felt | null = l1 !== null && l1.height === liveStart - 1 ? l1.hash : null;
  return [
    ...backfillChunks(first, liveStart - 1, chunkBlocks),
    { name: LIVE, start: liveStart, end: null, finalHash: below },
  ];
}

/** Cut at multiples of the chunk's size, so that names stay round and two plans never overlap by halves. */
function backfillChunks(from: number, to: number, chunkBlocks: number): NewChunk[] {
  const chunks: NewChunk[] = [];
  for (let start = from; start <= to;) {
    const end = Math.min(to, (Math.floor(start / chunkBlocks) + 1) * chunkBlocks - 1);
    chunks.push({ name: `backfill-${digits(start)}-${digits(end)}`, start, end, finalHash: null });
    start = end + 1;
  }
  return chunks;
}

function digits(height: number): string {
  return String(height).padStart(9, '0');
}
