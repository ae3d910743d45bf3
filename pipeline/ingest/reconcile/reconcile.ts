import { chunksOf } from '../../../infra/chunks.ts';
import { REVERT_PAGE, combinations, publishAccepted, publishReverted } from '../publish.ts';
import type { Chunk, IngestDeps, Lease, RecordedHeader } from '../ports.ts';
import { chainAbove, compareWithLog } from './compare.ts';
import { foldVersions, versionKey } from './versions.ts';
import type { LoggedVersion } from './versions.ts';

export type ReconcileDeps = Pick<
  IngestDeps,
  'store' | 'blockLog' | 'publisher' | 'checks' | 'clock' | 'log' | 'metrics'
>;

/** How far the clocks of PostgreSQL, Kafka and the ingesters may differ. */
const CLOCK_SKEW_MS = 60_000;

/**
 * Brings the stored state of a chunk in line with the log, which is the truth: a PostgreSQL that has failed over may lack
 * its last transactions, so that the log holds blocks and reverts it does not know. Called before anything is published
 * under a lease. Reads only the log since the cursor last moved: what was lost is newer.
 *
 * @throws `RECORDS_INCOMPLETE` if recorded blocks are missing and the log does not tell which
 */
export async function reconcileWithLog(deps: ReconcileDeps, lease: Lease): Promise<void> {
  const chunk = await deps.store.chunk(lease);
  const { start, end, cursor, plan } = chunk;
  // Nothing of it is known to be published. Its blocks are final, and any of them in the log are published again as they are.
  if (end !== null && cursor === start && plan.to < start) return;
  const since = chunk.updatedAt - CLOCK_SKEW_MS;
  const messages = deps.blockLog.messagesSince(since, { start, end }, lease.signal);
  const { versions, maxSeq } = await foldVersions(messages);
  lease.seq.exceed(maxSeq);
  if (end === null) await reconcileLive(deps, lease, chunk, versions);
  else await reconcileBackfill(deps, lease, chunk, versions);
}

/** Records the blocks of the log that continue the recorded chain, as not confirmed; reverts the others. */
async function reconcileLive(
  deps: ReconcileDeps,
  lease: Lease,
  chunk: Chunk,
  versions: readonly LoggedVersion[],
): Promise<void> {
  const { store, log } = deps;
  const headers = await store.recordedHeaders(lease);
  const recorded = await recordedKeys(deps, lease, headers, versions);
  const { adopt, revert, fork } = compareWithLog({ chunk, headers, recorded, versions });
  if (adopt.length === 0 && revert.length === 0 && fork === null) return;
  log.warn(
    { chunk: chunk.name, adopted: adopt.length, reverted: revert.length, fork },
    'the log has blocks or reverts that PostgreSQL has lost',
  );
  for (const page of chunksOf(adopt, REVERT_PAGE)) {
    const blocks = await deps.blockLog.blocksAt(page, lease.signal);
    await store.record(
      lease,
      blocks.map(({ block, contracts }) => ({ body: block, maps: [contracts] })),
    );
  }
  await revertVersions(deps, lease, revert);
  // Last: it moves the time from which the log is read, and only what is not done by then is found again.
  if (fork !== null) await store.markForRevert(lease, fork);
}

/**
 * Publishes the blocks of the log that continue the chunk again, as they are, and moves the cursor behind them; reverts
 * the others that no plan explains: they follow a gap, and the node is asked for them again.
 */
async function reconcileBackfill(
  deps: ReconcileDeps,
  lease: Lease,
  chunk: Chunk,
  versions: readonly LoggedVersion[],
): Promise<void> {
  const { store, log, blockLog } = deps;
  const ahead = versions.filter(({ isAccepted, height }) => isAccepted && height >= chunk.cursor);
  if (ahead.every(({ height }) => height <= chunk.plan.to)) return;
  const tip = chunk.cursor === chunk.start ? null : chunk.finalHash;
  const chain = chainAbove(ahead, chunk.cursor - 1, tip);
  const known = new Set(chain);
  const others = ahead.filter((version) => !known.has(version) && version.height > chunk.plan.to);
  log.warn(
    { chunk: chunk.name, adopted: chain.length, reverted: others.length },
    'the log has blocks that PostgreSQL has lost',
  );
  await revertVersions(deps, lease, others);
  for (const page of chunksOf(chain, REVERT_PAGE)) {
    const blocks = await blockLog.blocksAt(page, lease.signal);
    const [first, last] = [blocks[0]?.block, blocks.at(-1)?.block];
    if (first === undefined || last === undefined) continue;
    await publishAccepted(deps, lease, blocks, () => 'replay');
    await store.moveCursor(lease, {
      from: first.height,
      to: last.height + 1,
      final: { height: last.height, hash: last.hash },
      firstParent: first.parent_hash,
    });
  }
}

/** Reverts blocks (given lowest first) newest first, each under a seq of its own: several may be of one height. */
export async function revertVersions(
  deps: ReconcileDeps,
  lease: Lease,
  versions: readonly LoggedVersion[],
): Promise<void> {
  for (const page of chunksOf(versions.toReversed(), REVERT_PAGE)) {
    for (const { block, contracts } of await deps.blockLog.blocksAt(page, lease.signal)) {
      const seq = await lease.seq.forRevert();
      await publishReverted(deps, lease, [{ body: block, maps: [contracts] }], seq);
    }
  }
}

/** Keys of the recorded versions at the heights that occur in the newest part of the log. */
async function recordedKeys(
  { store }: ReconcileDeps,
  lease: Lease,
  headers: readonly RecordedHeader[],
  versions: readonly LoggedVersion[],
): Promise<Set<string>> {
  const logged = new Set(versions.map(({ height }) => height));
  const heights = headers.map(({ height }) => height).filter((height) => logged.has(height));
  const keys = new Set<string>();
  for (const page of chunksOf(heights, REVERT_PAGE)) {
    const [low, high] = [page[0] ?? 0, page.at(-1) ?? -1];
    for (const { body, maps, rereads = [] } of await store.recordedBlocks(lease.name, low, high)) {
      for (const version of combinations([body, ...rereads], maps)) keys.add(versionKey(version));
    }
  }
  return keys;
}
