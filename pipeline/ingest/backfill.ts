import type { Felt } from '../../schemas/felt.ts';
import { createPublishPlan } from './contract-facts.ts';
import { assertStillFinal, headerOf, inconsistent, linkedLength } from './fork.ts';
import type { ChunkTask, IngestDeps } from './ports.ts';
import { createBlockPrefetch } from './prefetch.ts';
import type { Prefetch, ReadyBlock } from './prefetch.ts';
import { publishAccepted, publishStatus, statusStamp } from './publish.ts';

/** Blocks published and acknowledged together, which is also the most that a crash publishes twice. */
const BATCH = { blocks: 500, bytes: 6_000_000 };

/**
 * Indexes a chunk of final blocks to its end. They cannot be reverted, so they are not recorded; instead a block is
 * published only after its child has been seen to name it as parent.
 */
export async function runBackfill(deps: IngestDeps, task: ChunkTask): Promise<void> {
  const { store, metrics } = deps;
  const { lease } = task;
  const chunk = await store.chunk(lease);
  const { start, end } = chunk;
  if (end === null) throw new Error(`chunk ${chunk.name} has no end`);
  const neighbours = await findNeighbours(deps, start, end);
  let cursor = chunk.cursor;
  let tip = cursor === start ? neighbours.below : chunk.finalHash;
  const plan = createPublishPlan(deps, lease, chunk.plan);
  const prefetch = createBlockPrefetch(deps, cursor, { priority: 0, finalOnly: true, signal: lease.signal });
  try {
    prefetch.setEnd(end);
    while (cursor <= end) {
      if (await task.runRepairs()) prefetch.restart(cursor);
      const ready = await nextLinked(deps, prefetch, { cursor, end, tip, above: neighbours.above });
      const first = ready[0];
      const last = ready.at(-1);
      if (first === undefined || last === undefined) throw inconsistent(cursor);
      await publishAccepted(deps, lease, await plan.apply(ready, cursor), () => 'new');
      const { height, hash } = last.block;
      await store.moveCursor(lease, {
        from: cursor,
        to: height + 1,
        final: { height, hash },
        firstParent: first.block.parent_hash,
      });
      prefetch.consume(ready.length);
      cursor = height + 1;
      tip = hash;
      metrics.cursor.set({ chunk: chunk.name }, cursor);
      await task.progress();
    }
  } finally {
    prefetch.close();
  }
  lease.assertValid();
  await publishStatus(deps, [{ type: 'chunk.finished', ...statusStamp(deps.clock), name: chunk.name }]);
  await store.finish(lease);
  await task.progress();
}

interface Progress {
  readonly cursor: number;
  readonly end: number;
  /** Hash of the block below the cursor; null: not known. */
  readonly tip: Felt | null;
  /** Parent hash of the first block of the chunk above; null: not known. */
  readonly above: Felt | null;
}

/**
 * The next blocks that are certain to be of one chain: each is named as parent by its child, and the first names the block
 * below the chunk as its parent.
 */
async function nextLinked(
  deps: IngestDeps,
  prefetch: Prefetch<ReadyBlock>,
  { cursor, end, tip, above }: Progress,
): Promise<ReadyBlock[]> {
  const items = await prefetch.peek({ atLeast: 2, ...BATCH });
  const linked = linkedLength(
    items.map(({ block }) => block),
    tip,
  );
  if (linked === 0 && tip !== null) await assertStillFinal(deps.node, { height: cursor - 1, hash: tip });
  const first = items[0]?.block;
  if (tip === null && first !== undefined && cursor > 0) {
    const below = await headerOf(deps.node, cursor - 1);
    if (below !== null && below.hash !== first.parent_hash) throw inconsistent(cursor);
  }
  const last = items[linked - 1]?.block;
  if (last?.height !== end) return items.slice(0, Math.max(0, linked - 1));
  const parentAbove = above ?? (await headerOf(deps.node, end + 1))?.parentHash ?? null;
  if (parentAbove !== null && parentAbove !== last.hash) throw inconsistent(end);
  return items.slice(0, linked);
}

/** The hashes that the neighbouring chunks expect at this chunk's borders; null where they are not known. */
async function findNeighbours({ store }: IngestDeps, start: number, end: number) {
  const chunks = await store.chunks();
  const below = chunks.find((other) => other.end === start - 1);
  const above = chunks.find((other) => other.start === end + 1);
  return {
    below: below !== undefined && below.cursor === start ? below.finalHash : null,
    above: above?.firstParent ?? null,
  };
}
