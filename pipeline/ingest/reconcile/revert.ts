import { AppError } from '../../../schemas/errors.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { isRpcError, rpcCodes } from '../../node/errors.ts';
import type { BlockHeader, BlockPoint, Node } from '../../node/types.ts';
import { acquireLease } from '../lease.ts';
import type { LeaseDeps } from '../lease.ts';
import type { Lease } from '../ports.ts';
import { reconcileWithLog, revertVersions } from './reconcile.ts';
import type { ReconcileDeps } from './reconcile.ts';
import { foldVersions } from './versions.ts';
import type { LoggedVersion } from './versions.ts';

export interface RevertDeps extends ReconcileDeps, LeaseDeps {
  readonly node: Pick<Node, 'getBlockHeader'>;
  /** Has final blocks fetched from the node and published again, as by a reorg; returns how many. */
  readonly requestRepairs: (heights: readonly number[]) => Promise<number>;
}

/** Heights of the reverted blocks, lowest first; empty if the block was reverted already. */
export interface RevertedOrphans {
  readonly heights: readonly number[];
}

/** A block is published after its own time. This margin covers clocks that differ, and a parent of another fork. */
const PUBLISHED_BEFORE_MS = 3_600_000;
/** How far below the block orphans are looked for: more than a chain makes in PUBLISHED_BEFORE_MS. */
const HEIGHTS_BELOW = 5000;

/**
 * Reverts an orphan that stands in the log as accepted, with all blocks on top of it. Takes the lease of its chunk from the
 * ingester for some seconds. What the chain has at these heights is published again by the ingester, above the reverts.
 *
 * @throws `CONFLICT` if the node has this block, or none at its height; `NOT_FOUND` if the log does not have it
 */
export async function revertOrphan(deps: RevertDeps, orphan: BlockPoint): Promise<RevertedOrphans> {
  const { store, blockLog, clock, settings } = deps;
  const { height } = orphan;
  const chunks = await store.chunks();
  const chunk = chunks.find(({ start, end }) => height >= start && height <= (end ?? height));
  if (chunk === undefined) throw new AppError('NOT_FOUND', `No chunk contains height ${height}`);
  const since = await earliestPublish(deps, orphan);
  const start = Math.max(0, height - HEIGHTS_BELOW);
  const messages = blockLog.messagesSince(since, { start, end: chunk.end });
  const { versions, maxSeq } = await foldVersions(messages);
  const standing = standingFrom(versions, orphan, since);
  const [first] = standing;
  if (first === undefined) return { heights: [] };
  await assertLowest(deps, versions, first);

  const lease = await acquireLease(deps, chunk.name, { takeOver: true });
  if (lease === null) throw new AppError('CONFLICT', `Chunk ${chunk.name} does not exist any more`);
  try {
    // The holder until now may have a request in flight, or not know yet that it has lost the lease.
    await clock.sleep(settings.leaseMs, lease.signal);
    lease.seq.exceed(maxSeq);
    await reconcileWithLog(deps, lease);
    return await revertUnderLease(deps, lease, versions, standing);
  } finally {
    await lease.release();
  }
}

async function revertUnderLease(
  deps: RevertDeps,
  lease: Lease,
  versions: readonly LoggedVersion[],
  standing: readonly LoggedVersion[],
): Promise<RevertedOrphans> {
  const { finalHeight, cursor } = await deps.store.chunk(lease);
  const heights = [...new Set(standing.map(({ height }) => height))];
  const finals = new Set(heights.filter((height) => height <= finalHeight && height < cursor));
  // A revert hides the rows of every block at its height, so the chain's block is published again, under a higher seq.
  // Requested first: after a crash in between the command finds the orphan again. Repaired in this order, from the highest
  // down: while a block is missing, balances after a block below it are unknown, and webhooks are sent null.
  if (finals.size > 0) await deps.requestRepairs([...finals].toReversed());
  const lowestOpen = heights.find((height) => height > finalHeight);
  if (lowestOpen !== undefined) await deps.store.markForRevert(lease, lowestOpen - 1);
  const replaced = versions.filter(
    (version) => version.isAccepted && finals.has(version.height) && !standing.includes(version),
  );
  await revertVersions(
    deps,
    lease,
    [...standing, ...replaced].toSorted((a, b) => a.height - b.height),
  );
  if (finals.has(finalHeight)) await replaceFinal(deps, lease, finalHeight);
  return { heights };
}

/** The newest final block was the orphan: the node had said that L1 accepted it. What comes next is a child of the chain's block. */
async function replaceFinal({ node, store }: RevertDeps, lease: Lease, height: number): Promise<void> {
  const { cursor } = await store.chunk(lease);
  const { hash, parentHash } = await node.getBlockHeader(height);
  await store.moveCursor(lease, {
    from: cursor,
    to: cursor,
    final: { height, hash },
    firstParent: parentHash,
  });
}

/** @throws CONFLICT while the node has no block at this height */
async function requiredHeader({ node }: RevertDeps, height: number): Promise<BlockHeader> {
  try {
    return await node.getBlockHeader(height);
  } catch (error) {
    if (!isRpcError(error, rpcCodes.blockNotFound)) throw error;
    throw new AppError(
      'CONFLICT',
      `The node has no block ${height}: it may be behind. Try again when it has`,
    );
  }
}

/** The earliest time (unix milliseconds) of a message about the block, by the time of the chain's block below it. */
async function earliestPublish(deps: RevertDeps, { height, hash }: BlockPoint): Promise<number> {
  if ((await requiredHeader(deps, height)).hash === hash)
    throw new AppError(
      'CONFLICT',
      `The node has block ${height} ${hash}: it is no orphan. To publish it again, run tds verify --repair or tds reclassify`,
    );
  return (await requiredHeader(deps, Math.max(0, height - 1))).timestamp * 1000 - PUBLISHED_BEFORE_MS;
}

/** The ingester would index the chain's blocks on top of an orphan that stays in the log. */
async function assertLowest(
  deps: RevertDeps,
  versions: readonly LoggedVersion[],
  orphan: LoggedVersion,
): Promise<void> {
  const parentOf = ({ height, parentHash }: LoggedVersion): LoggedVersion | undefined =>
    versions.find((one) => one.isAccepted && one.height === height - 1 && one.hash === parentHash);
  let lowest = orphan;
  for (let next = parentOf(orphan); next !== undefined; next = parentOf(next)) {
    if ((await requiredHeader(deps, next.height)).hash === next.hash) break;
    lowest = next;
  }
  if (lowest === orphan) return;
  throw new AppError(
    'CONFLICT',
    `Block ${lowest.height} ${lowest.hash}, below it, is an orphan, too: run tds revert ${lowest.height} ${lowest.hash} first`,
  );
}

/** The accepted versions of a block and of all blocks on top of it; throws `NOT_FOUND` if there is no message about it. */
function standingFrom(
  versions: readonly LoggedVersion[],
  { height, hash }: BlockPoint,
  since: number,
): LoggedVersion[] {
  const isTarget = (version: LoggedVersion): boolean => version.height === height && version.hash === hash;
  if (!versions.some(isTarget))
    throw new AppError(
      'NOT_FOUND',
      `The log since ${new Date(since).toISOString()} has no block ${height} ${hash}`,
    );
  const orphans = new Set<Felt>([hash]);
  return versions.filter((version) => {
    if (!isTarget(version) && !(version.height > height && orphans.has(version.parentHash))) return false;
    orphans.add(version.hash);
    return version.isAccepted;
  });
}
