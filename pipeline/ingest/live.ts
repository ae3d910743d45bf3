import type { BlockPoint } from '../node/types.ts';
import { isRpcError, rpcCodes } from '../node/errors.ts';
import { compareWithHead, findFork, linkedLength } from './fork.ts';
import { createHeads } from './heads.ts';
import { createL1Watch } from './heads.ts';
import { createIndexedChain } from './fork.ts';
import type { IngestDeps } from './ports.ts';
import { createPlans } from './contracts/facts.ts';
import { createPrefetch } from './prefetch.ts';
import type { ReadyBlock } from './prefetch.ts';
import { REVERT_PAGE, publishAccepted, publishReverted } from './publish.ts';
import type { ChunkTask } from './lease.ts';

/** Published and acknowledged together while catching up. */
const BATCH = { blocks: 200, bytes: 6_000_000 };
/** At the head, a call for news overtakes the blocks of backfill that wait for a place. */
const PRIORITY = 1;

/** more: there may be more to do at once; idle: the node has nothing new; waiting: it has not shown yet what is needed. */
type Step = 'more' | 'idle' | 'waiting';

/**
 * Follows the head of the chain. Every block above what is final is first recorded, then published, then the cursor
 * moves; so what is recorded at or above the cursor is all that may be in the log without our knowing. That is settled
 * first: published again where the node still has it, else reverted. Returns when the lease is gone.
 */
export async function runLive(deps: IngestDeps, task: ChunkTask): Promise<void> {
  const { node, store, log, metrics } = deps;
  const { lease } = task;
  const options = { signal: lease.signal, priority: PRIORITY };
  const chunk = await store.chunk(lease);
  const ours = createIndexedChain(chunk, await store.recordedHeaders(lease));
  const plans = createPlans(deps, lease, chunk.plan);
  const source = createPrefetch(deps, ours.cursor(), { ...options, finalOnly: false });
  const heads = createHeads(deps);
  const l1 = createL1Watch(deps, lease, ours.floor().height);
  /** Blocks up to this height take the place of reverted ones. */
  let reorgTop = -1;

  /** Takes back everything that is to be reverted, newest first, page by page. */
  const takeBack = async (from: number): Promise<void> => {
    const seq = await lease.seq.forRevert();
    for (let high = ours.tip().height; high >= from; high -= REVERT_PAGE) {
      const low = Math.max(from, high - REVERT_PAGE + 1);
      await publishReverted(deps, lease, await store.recordedBlocks(lease.name, low, high), seq);
      await store.deleteReverted(lease, low);
      ours.dropped(low);
    }
    source.restart(ours.cursor());
  };

  /** Finds where our chain and the node's part, and writes down that everything above is to be reverted. */
  const handleReorg = async (disputed: number): Promise<void> => {
    const fork = await findFork(node, ours, disputed, options);
    const depth = ours.tip().height - fork;
    log.warn({ chunk: lease.name, fork, depth, disputed }, 'reorg');
    metrics.reorg(depth);
    reorgTop = Math.max(reorgTop, ours.tip().height);
    await store.markForRevert(lease, fork);
    ours.markForRevert(fork);
  };

  /** Publishes again what was recorded when the last writer ended, up to a height where the node has the same block. */
  const replay = async (upTo: number): Promise<void> => {
    const from = ours.cursor();
    const to = Math.min(upTo, ours.tip().height, from + REVERT_PAGE - 1);
    const blocks = await store.recordedBlocks(lease.name, from, to);
    const ready = blocks.map(({ body, maps }) => ({ block: body, contracts: maps.at(-1) ?? {} }));
    const first = ready[0];
    if (first === undefined) return;
    await publishAccepted(deps, lease, ready, () => 'replay');
    await move(to + 1, null, first.block.parent_hash);
    source.restart(to + 1);
  };

  const move = async (to: number, final: BlockPoint | null, firstParent: ReadyBlock['block']['hash']) => {
    await store.moveCursor(lease, { from: ours.cursor(), to, final, firstParent });
    ours.moved(to, final);
    metrics.cursor(lease.name, to);
  };

  const accept = async (ready: readonly ReadyBlock[], final: boolean): Promise<void> => {
    const first = ready[0];
    const last = ready.at(-1)?.block;
    if (first === undefined || last === undefined) return;
    const settled = await plans.settle(ready, ours.cursor(), final);
    if (!final) {
      await store.record(
        lease,
        settled.map(({ block, contracts }) => ({ body: block, maps: [contracts] })),
      );
      ours.recorded(ready.map(({ block }) => block));
    }
    await publishAccepted(deps, lease, settled, (height) => (height <= reorgTop ? 'reorg' : 'new'));
    for (const { block } of ready) heads.published(block.height);
    await move(last.height + 1, final ? last : null, first.block.parent_hash);
    source.consume(ready.length);
  };

  /** Takes the next blocks up to the node's head; false when their parent is not ours. */
  const follow = async (): Promise<boolean> => {
    const items = await source.peek({ atLeast: 1, ...BATCH });
    const linked = items.slice(
      0,
      linkedLength(
        items.map(({ block }) => block),
        ours.tip().hash,
      ),
    );
    if (linked.length === 0) {
      source.restart(ours.cursor());
      return false;
    }
    // Final already, as the node says of the very block, and nothing recorded below: it cannot be reverted.
    const settledFloor = ours.floor().height === ours.tip().height;
    const accepted = l1.newest();
    const open = linked.findIndex(
      ({ block, status }) => status !== 'ACCEPTED_ON_L1' || !isUpTo(block, accepted),
    );
    const finals = settledFloor ? (open === -1 ? linked.length : open) : 0;
    await accept(linked.slice(0, finals), true);
    await accept(linked.slice(finals), false);
    return true;
  };

  /** One look at the node and what follows from it. */
  const step = async (): Promise<Step> => {
    const reverting = ours.revertingFrom();
    if (reverting !== null) {
      await takeBack(reverting);
      return 'more';
    }
    const head = await node.blockHashAndNumber(options);
    if (head === null) return 'idle';
    heads.seen(head);
    const verdict = await compareWithHead(node, ours, head, options);
    if (verdict.kind === 'disputed') {
      await handleReorg(verdict.at);
      return 'more';
    }
    if (ours.isUnsettled()) {
      if (verdict.upTo < ours.cursor()) return 'waiting';
      await replay(verdict.upTo);
      return 'more';
    }
    if (head.height < ours.cursor()) return 'idle';
    source.setEnd(head.height);
    if (!(await follow())) await handleReorg(ours.cursor() - 1);
    return 'more';
  };

  try {
    while (!lease.signal.aborted) {
      if (await task.runRepairs()) source.restart(ours.cursor());
      const outcome = await stepOrWait(step);
      await l1.settle(ours);
      await heads.announce();
      if (outcome !== 'waiting') await task.progress();
      if (outcome !== 'more' || ours.cursor() > heads.height()) await heads.wait(lease.signal);
    }
  } finally {
    source.close();
    l1.stop();
  }
}

/** A block that the head promised and the node does not have yet: another node of a balancer answered. */
async function stepOrWait(step: () => Promise<Step>): Promise<Step> {
  try {
    return await step();
  } catch (error) {
    if (isRpcError(error, rpcCodes.blockNotFound)) return 'waiting';
    throw error;
  }
}

/** Below the point, or the very block of it. */
function isUpTo(block: BlockPoint, point: BlockPoint | null): boolean {
  if (point === null || block.height > point.height) return false;
  return block.height < point.height || block.hash === point.hash;
}
