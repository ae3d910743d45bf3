import { isDeepStrictEqual } from 'node:util';

import { AppError } from '../../schemas/errors.ts';
import { LIVE } from '../../schemas/messages/chain-blocks.ts';
import { detectCapabilities, isSpecFrom } from '../node/capabilities.ts';
import { assertSameChain, chainName } from '../node/chain-id.ts';
import type { ChainCheck } from '../node/chain-id.ts';
import type { BlockPoint } from '../node/types.ts';
import type { Chunk, IngestDeps, IngestStore, NewChunk } from './ports.ts';
import { publishStatus, statusStamp } from './publish.ts';

/** Checks a chain id against the stored one; the first id checked is stored for good. */
export function createChainCheck(store: Pick<IngestStore, 'storeChainId'>): ChainCheck {
  return async (served) => assertSameChain(served, await store.storeChainId(served));
}

/** Of the oldest supported JSON-RPC specification, 0.8: before it, nodes had no common code for a missing entry point. */
const OLDEST_MINOR = 8;

/**
 * Checks that the node serves the indexed chain, and publishes the node's capabilities if they changed.
 *
 * @throws `CHAIN_MISMATCH`
 */
export async function identifyChain(deps: IngestDeps, signal: AbortSignal): Promise<void> {
  const { node, store, clock, log } = deps;
  const found = await detectCapabilities(node, { signal });
  await createChainCheck(store)(found.chainId);
  if (!isSpecFrom(found.specVersion, OLDEST_MINOR))
    log.warn(
      { specVersion: found.specVersion },
      'JSON-RPC of the node is too old; set STARKNET_RPC_URL to where it serves 0.8 or later',
    );
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

/** Up to this height, a chain of which the node reports no block as accepted on L1 is indexed from block 0. */
const YOUNG_CHAIN_HEIGHT = 10_000;

/**
 * Creates the missing chunks, and publishes `chunk.opened` for each new one.
 *
 * @throws `CONFIG_INVALID` if INDEX_FROM is required; retryable, because the node may report a block accepted on L1 later
 */
export async function openChunks(deps: IngestDeps, signal: AbortSignal): Promise<void> {
  const { store, clock, settings } = deps;
  const { indexFrom, backfillChunkBlocks: chunkBlocks } = settings;
  const existing = await store.chunks();
  const l1 = existing.length > 0 ? null : await deps.node.l1Accepted(null, { signal });
  if (existing.length === 0 && indexFrom === null && l1 === null) await assertYoungChain(deps, signal);
  const missing = planChunks({ existing, indexFrom, l1, chunkBlocks });
  // Another process created chunks meanwhile: plan again from those.
  if (missing.length > 0 && !(await store.createChunks(missing))) return await openChunks(deps, signal);
  for (const { name, start, end, opened } of await store.chunks()) {
    if (opened) continue;
    await publishStatus(deps, [{ type: 'chunk.opened', ...statusStamp(clock), name, start, end }]);
    await store.markOpened(name);
  }
}

async function assertYoungChain({ node }: IngestDeps, signal: AbortSignal): Promise<void> {
  const head = await node.blockHashAndNumber({ signal });
  if (head === null || head.height <= YOUNG_CHAIN_HEIGHT) return;
  throw new AppError(
    'CONFIG_INVALID',
    `INDEX_FROM must be set: the node is at block ${head.height} and reports no block accepted on L1 to start from`,
    { retryable: true },
  );
}

export interface PlanInput {
  readonly existing: readonly Pick<Chunk, 'start' | 'end'>[];
  /** null: the height accepted on L1. */
  readonly indexFrom: number | null;
  /** null: nothing is accepted on L1 (a young chain, or a development node). */
  readonly l1: BlockPoint | null;
  readonly chunkBlocks: number;
}

/**
 * Plans the missing chunks. At first: backfill from the first height to the one accepted on L1, and `live` above it, so
 * that only `live` can see a reorg. Later: the range below the lowest chunk if the first height was lowered.
 */
export function planChunks({ existing, indexFrom, l1, chunkBlocks }: PlanInput): NewChunk[] {
  if (existing.length > 0) {
    const lowest = existing.reduce((low, { start }) => Math.min(low, start), Infinity);
    return indexFrom === null ? [] : backfillChunks(indexFrom, lowest - 1, chunkBlocks);
  }
  const first = indexFrom ?? l1?.height ?? 0;
  const liveStart = Math.max(first, (l1?.height ?? -1) + 1);
  const finalHash = l1 !== null && l1.height === liveStart - 1 ? l1.hash : null;
  return [
    ...backfillChunks(first, liveStart - 1, chunkBlocks),
    { name: LIVE, start: liveStart, end: null, finalHash },
  ];
}

/** Split at multiples of the chunk size, so that the chunks of two plans never overlap partially. */
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
