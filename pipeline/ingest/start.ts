import { isDeepStrictEqual } from 'node:util';

import type { Felt } from '../../schemas/felt.ts';
import { capabilities } from '../node/capabilities.ts';
import { assertSameChain, chainName } from '../node/chain-id.ts';
import type { ChainCheck } from '../node/chain-id.ts';
import type { BlockPoint } from '../node/types.ts';
import type { Chunk, IngestDeps, IngestStore, NewChunk } from './ports.ts';
import { publishStatus, statusStamp } from './publish.ts';

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

/** The first chain that is named is the one that an installation holds for good. */
export function createChainCheck(store: Pick<IngestStore, 'storeChainId'>): ChainCheck {
  return async (served) => assertSameChain(served, await store.storeChainId(served));
}

/**
 * Makes sure that the node serves the chain that was indexed so far, and tells the log what the node can do when that
 * is new.
 *
 * @throws `CHAIN_MISMATCH` when it is another chain
 */
export async function identifyChain(deps: IngestDeps, signal: AbortSignal): Promise<void> {
  const { node, store, clock, log } = deps;
  const found = await capabilities(node, { signal });
  await createChainCheck(store)(found.chainId);
  if (isDeepStrictEqual(await store.announcedCapabilities(), { ...found })) return;
  log.info({ ...found, chain: chainName(found.chainId) }, 'chain identified');
  await publishStatus(deps, [
    {
      type: 'network.identified',
      ...statusStamp(clock),
      chain_id: found.chainId,
      spec_version: found.specVersion,
      has_header_counts: found.hasHeaderCounts,
      has_l1_tag: found.hasL1Tag,
    },
  ]);
  await store.setAnnouncedCapabilities(found);
}
