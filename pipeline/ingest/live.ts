import { AppError } from '../../schemas/errors.ts';
import type { Felt } from '../../schemas/felt.ts';
import { isRpcError, rpcCodes } from '../node/errors.ts';
import type { BlockPoint } from '../node/types.ts';
import { createPublishPlan } from './contract-facts.ts';
import type { PublishPlan } from './contract-facts.ts';
import { compareWithHead, createIndexedChain, findFork, inconsistent, linkedLength } from './fork.ts';
import type { IndexedChain } from './fork.ts';
import { isHalting } from './health.ts';
import { acceptedHeight, createHeads, startL1Watch } from './heads.ts';
import type { Heads, L1Watch } from './heads.ts';
import type { ChunkTask, IngestDeps } from './ports.ts';
import { createBlockPrefetch } from './prefetch.ts';
import type { Prefetch, ReadyBlock } from './prefetch.ts';
import { REVERT_PAGE, publishAccepted, publishReverted } from './publish.ts';

/** Blocks published and acknowledged together while catching up. */
const BATCH = { blocks: 200, bytes: 6_000_000 };
/** Requests for the head overtake queued backfill requests. */
const PRIORITY = 1;

/** more: there may be more to do at once; idle: the node has nothing new; waiting: the node lags behind the indexed chain. */
type Step = 'more' | 'idle' | 'waiting';

interface Live extends ChunkTask {
  readonly deps: IngestDeps;
  readonly options: { readonly signal: AbortSignal; readonly priority: number };
  readonly indexed: IndexedChain;
  readonly plan: PublishPlan;
  readonly prefetch: Prefetch<ReadyBlock>;
  readonly heads: Heads;
  readonly l1: L1Watch;
}

/**
 * Follows the head of the chain until the lease ends or a comparison with the log is due. A block above the final ones is
 * recorded, then published, and then the cursor moves, so after a crash the log may contain blocks recorded at or above the
 * cursor. These are handled first: published again if the node still has them, and reverted otherwise.
 */
export async function runLive(deps: IngestDeps, task: ChunkTask): Promise<void> {
  const live = await openLive(deps, task);
  const { lease, indexed, prefetch, heads, l1 } = live;
  try {
    while (!lease.signal.aborted && !task.isReconcileDue()) {
      if (await task.runRepairs()) prefetch.restart(indexed.cursor());
      const outcome = await stepOrWait(live);
      await l1.apply(indexed);
      await heads.announce();
      if (outcome === 'waiting') task.waiting(describeWait(live));
      else await task.progress();
      if (outcome !== 'more' || indexed.cursor() > heads.height())
        await heads.wait(lease.signal, { isBehind: outcome === 'waiting' });
    }
  } finally {
    prefetch.close();
    heads.close();
    l1.stop();
  }
}

async function openLive(deps: IngestDeps, task: ChunkTask): Promise<Live> {
  const { lease } = task;
  const options = { signal: lease.signal, priority: PRIORITY };
  const chunk = await deps.store.chunk(lease);
  const indexed = createIndexedChain(chunk, await deps.store.recordedHeaders(lease));
  deps.metrics.cursor.set({ chunk: lease.name }, indexed.cursor());
  return {
    ...task,
    deps,
    options,
    indexed,
    plan: createPublishPlan(deps, lease, chunk.plan),
    prefetch: createBlockPrefetch(deps, indexed.cursor(), { ...options, finalOnly: false }),
    heads: createHeads(deps, task.publishedHead),
    l1: startL1Watch(deps, task, acceptedHeight(indexed)),
  };
}

/** Waits if the node lacks a block that its head promised: another node of the load balancer answered. */
async function stepOrWait(live: Live): Promise<Step> {
  try {
    return await step(live);
  } catch (error) {
    if (isRpcError(error, rpcCodes.blockNotFound)) return 'waiting';
    // Otherwise a chunk that stalls would look as if it had nothing left to do. Where it halts, the head may be another
    // chain's.
    if (!live.lease.signal.aborted && !isHalting(error)) await live.heads.announce().catch(() => {});
    throw error;
  }
}

function describeWait({ indexed, heads }: Live): string {
  return `the node lacks block ${indexed.cursor()} or one below it, and its newest is ${heads.height()}`;
}

/** Reads the node's head once and acts on it. */
async function step(live: Live): Promise<Step> {
  const { deps, options, indexed, prefetch, heads } = live;
  const reverting = indexed.revertingFrom();
  if (reverting !== null) {
    await revertFrom(live, reverting);
    return 'more';
  }
  const head = await deps.node.blockHashAndNumber(options);
  if (head === null) {
    // A new chain may have none yet.
    if (indexedHeight(indexed) >= 0) await live.headSeen(null, indexedHeight(indexed));
    return 'idle';
  }
  const isFirst = heads.height() === -1;
  heads.observe(head);
  await live.headSeen(head, indexedHeight(indexed));
  const comparison = await compareWithHead(deps.node, indexed, head, options);
  if (comparison.kind === 'mismatch') {
    await startReorg(live, comparison.at);
    return 'more';
  }
  if (isFirst || head.height < indexed.tip().height) await assertSameTime(live, comparison.upTo);
  if (indexed.hasUnconfirmed()) {
    if (comparison.upTo < indexed.cursor()) return 'waiting';
    await republish(live, comparison.upTo);
    return 'more';
  }
  if (head.height < indexed.cursor()) return 'idle';
  prefetch.setEnd(head.height);
  if (!(await acceptNext(live))) await startReorg(live, indexed.cursor() - 1);
  return 'more';
}

/** The highest indexed height; -1 before the first block, also where that is a later one of the chain. */
function indexedHeight(indexed: IndexedChain): number {
  const { height, hash } = indexed.tip();
  return hash === null ? -1 : height;
}

/**
 * The block hashes of starknet-devnet do not cover the time, so those of a restarted devnet may equal those of the indexed
 * chain. Compared at the start, and while the node is behind, as a restarted one is.
 *
 * @throws `CHAIN_MISMATCH`
 */
async function assertSameTime({ deps, lease, options }: Live, height: number): Promise<void> {
  const [recorded] = await deps.store.recordedBlocks(lease.name, height, height);
  if (recorded === undefined) return;
  const { hash, timestamp } = recorded.body;
  const served = await deps.node.getBlockHeader(height, options);
  if (served.hash !== hash || served.timestamp === timestamp) return;
  throw new AppError(
    'CHAIN_MISMATCH',
    `block ${height} has timestamp ${served.timestamp} on the node and ${timestamp} in the index, and the same hash: a restarted devnet needs a new DATA_DIR`,
    { details: { height, hash, served: served.timestamp, indexed: timestamp } },
  );
}

/** Finds the fork below a height where the chains differ, and marks everything above it for revert. */
async function startReorg(live: Live, mismatchAt: number): Promise<void> {
  const { deps, lease, options, indexed } = live;
  const fork = await findFork(deps.node, indexed, mismatchAt, options);
  const { height: top } = indexed.tip();
  const depth = top - fork;
  deps.log.warn({ chunk: lease.name, fork, depth, mismatchAt }, 'reorg detected');
  deps.metrics.reorgDepth.observe(depth);
  live.replaced.top = Math.max(live.replaced.top, top);
  await deps.store.markForRevert(lease, fork);
  indexed.markedForRevert(fork);
  live.forgetHead();
}

/** Publishes the reverts of all blocks from a height up, newest first, page by page. */
async function revertFrom({ deps, lease, indexed, prefetch }: Live, from: number): Promise<void> {
  const seq = await lease.seq.forRevert();
  for (let high = indexed.tip().height; high >= from; high -= REVERT_PAGE) {
    const low = Math.max(from, high - REVERT_PAGE + 1);
    await publishReverted(deps, lease, await deps.store.recordedBlocks(lease.name, low, high), seq);
    await deps.store.deleteReverted(lease, low);
    indexed.deletedFrom(low);
  }
  prefetch.restart(indexed.cursor());
}

/** Publishes recorded blocks that a previous writer may not have published, up to a height where the node has the same. */
async function republish(live: Live, upTo: number): Promise<void> {
  const { deps, lease, indexed, prefetch } = live;
  const from = indexed.cursor();
  const to = Math.min(upTo, indexed.tip().height, from + REVERT_PAGE - 1);
  const recorded = await deps.store.recordedBlocks(lease.name, from, to);
  const ready = recorded.map(({ body, maps }) => ({ block: body, contracts: maps.at(-1) ?? {} }));
  const first = ready[0];
  if (first === undefined) return;
  await publishAccepted(deps, lease, ready, () => 'replay');
  await moveCursor(live, to + 1, null, first.block.parent_hash);
  prefetch.restart(to + 1);
}

/** Indexes the next blocks up to the node's head; false if the first one's parent is not the indexed tip. */
async function acceptNext(live: Live): Promise<boolean> {
  const { indexed, prefetch, l1 } = live;
  const items = await prefetch.peek({ atLeast: 1, ...BATCH });
  const length = linkedLength(
    items.map(({ block }) => block),
    indexed.tip().hash,
  );
  if (length === 0) {
    prefetch.restart(indexed.cursor());
    return false;
  }
  const linked = items.slice(0, length);
  // Blocks that are final already need no record, unless recorded blocks below them may still be reverted.
  const isTipFinal = indexed.final().height === indexed.tip().height;
  const accepted = l1.newest();
  const firstOpen = linked.findIndex(
    ({ block, status }) => status !== 'ACCEPTED_ON_L1' || !isAtOrBelow(block, accepted),
  );
  const finals = !isTipFinal ? 0 : firstOpen === -1 ? length : firstOpen;
  await accept(live, linked.slice(0, finals), { final: true });
  await accept(live, linked.slice(finals), { final: false });
  return true;
}

async function accept(
  live: Live,
  ready: readonly ReadyBlock[],
  { final }: { readonly final: boolean },
): Promise<void> {
  const { deps, lease, indexed, plan, prefetch, heads } = live;
  const first = ready[0];
  const last = ready.at(-1)?.block;
  if (first === undefined || last === undefined) return;
  if (!final) assertNotFinalBefore(ready, plan);
  const planned = await plan.apply(ready, indexed.cursor(), { recorded: !final });
  if (!final) {
    await deps.store.record(
      lease,
      planned.map(({ block, contracts }) => ({ body: block, maps: [contracts] })),
    );
    indexed.recorded(ready.map(({ block }) => block));
  }
  await publishAccepted(deps, lease, planned, (height) => (height <= live.replaced.top ? 'reorg' : 'new'));
  for (const { block } of ready) heads.published(block.height);
  await moveCursor(live, last.height + 1, final ? last : null, first.block.parent_hash);
  prefetch.consume(ready.length);
}

/**
 * An attempt to publish these heights as final may have reached the log, and nothing would revert its blocks. A node that
 * now has a block there that is not final is behind, perhaps on another fork.
 */
function assertNotFinalBefore(ready: readonly ReadyBlock[], plan: PublishPlan): void {
  const behind = ready.find(
    ({ block, status }) => block.height <= plan.publishedTo() && status !== 'ACCEPTED_ON_L1',
  );
  if (behind !== undefined) throw inconsistent(behind.block.height);
}

async function moveCursor(
  { deps, lease, indexed }: Live,
  to: number,
  final: BlockPoint | null,
  firstParent: Felt,
): Promise<void> {
  await deps.store.moveCursor(lease, { from: indexed.cursor(), to, final, firstParent });
  indexed.cursorMoved(to, final);
  deps.metrics.cursor.set({ chunk: lease.name }, to);
}

/** True for a block below the point, and for the point's own block. */
function isAtOrBelow(block: BlockPoint, point: BlockPoint | null): boolean {
  if (point === null || block.height > point.height) return false;
  return block.height < point.height || block.hash === point.hash;
}
