import { rpcCodes, isRpcError } from '../node/errors.ts';
import type { BlockPoint } from '../node/types.ts';
import { assertStillFinal, inconsistent, linkedLength } from './fork.ts';
import type { IngestDeps } from './ports.ts';
import { createPlans } from './contracts/facts.ts';
import { createPrefetch } from './prefetch.ts';
import type { ReadyBlock } from './prefetch.ts';
import { publishAccepted, publishStatus, statusStamp } from './publish.ts';
import type { Source } from './prefetch.ts';
import type { ChunkTask } from './lease.ts';

/** Published and acknowledged together; a crash publishes at most so much again. */
const BATCH = { blocks: 500, bytes: 6_000_000 };

/**
 * Indexes a chunk of final blocks to its end. Nothing in it can be reverted, so nothing is recorded; instead a block is
 * published only when its child is seen to name it as parent.
 */
export async function runBackfill(deps: IngestDeps, task: ChunkTask): Promise<void> {
  const { store, metrics } = deps;
  const { lease } = task;
  const chunk = await store.chunk(lease);
  if (chunk.end === null) throw new Error(`${chunk.name} has no end`);
  const neighbours = await findNeighbours(deps, chunk.start, chunk.end);
  let cursor = chunk.cursor;
  let tip = cursor === chunk.start ? neighbours.below : chunk.finalHash;
  const plans = createPlans(deps, lease, chunk.plan);
  const source = createPrefetch(deps, cursor, { priority: 0, finalOnly: true, signal: lease.signal });
  try {
    source.setEnd(chunk.end);
    while (cursor <= chunk.end) {
      if (await task.runRepairs()) source.restart(cursor);
      const ready = await nextLinked(deps, source, { cursor, end: chunk.end, tip, above: neighbours.above });
      const first = ready[0];
      const last = ready.at(-1);
      if (first === undefined || last === undefined) throw inconsistent(cursor);
      await publishAccepted(deps, lease, await plans.settle(ready, cursor), () => 'new');
      const { height, hash } = last.block;
      await store.moveCursor(lease, {
        from: cursor,
        to: height + 1,
        final: { height, hash },
        firstParent: first.block.parent_hash,
      });
      source.consume(ready.length);
      cursor = height + 1;
      tip = hash;
      metrics.cursor(chunk.name, cursor);
      await task.progress();
    }
  } finally {
    source.close();
  }
  lease.assertHeld();
  await publishStatus(deps, [{ type: 'chunk.finished', ...statusStamp(deps.clock), name: chunk.name }]);
  await store.finish(lease);
  await task.progress();
}

interface Position {
  readonly cursor: number;
  readonly end: number;
  /** Hash of the block below the cursor; null: not known. */
  readonly tip: BlockPoint['hash'] | null;
  /** What the chunk above names as the parent of its first block; null: not known. */
  readonly above: BlockPoint['hash'] | null;
}

/** The next blocks that are sure to be of one chain: each is named as parent by its child. */
async function nextLinked(
  deps: IngestDeps,
  source: Source<ReadyBlock>,
  { cursor, end, tip, above }: Position,
): Promise<ReadyBlock[]> {
  const items = await source.peek({ atLeast: 2, ...BATCH });
  const linked = linkedLength(
    items.map(({ block }) => block),
    tip,
  );
  if (linked === 0 && tip !== null) await assertStillFinal(deps.node, { height: cursor - 1, hash: tip });
  const last = items[linked - 1]?.block;
  if (last?.height !== end) return items.slice(0, Math.max(0, linked - 1));
  const parentAbove = above ?? (await parentOf(deps, end + 1));
  if (parentAbove !== null && parentAbove !== last.hash) throw inconsistent(end);
  return items.slice(0, linked);
}

async function parentOf({ node }: IngestDeps, height: number): Promise<BlockPoint['hash'] | null> {
  try {
    return (await node.getBlockHeader(height)).parentHash;
  } catch (error) {
    if (isRpcError(error, rpcCodes.blockNotFound)) return null;
    throw error;
  }
}

/** The hashes that the neighbouring chunks expect at this one's borders, where they are known. */
async function findNeighbours({ store }: IngestDeps, start: number, end: number) {
  const chunks = await store.chunks();
  const below = chunks.find((other) => other.end === start - 1);
  const above = chunks.find((other) => other.start === end + 1);
  return {
    below: below !== undefined && below.cursor === start ? below.finalHash : null,
    above: above?.firstParent ?? null,
  };
}
