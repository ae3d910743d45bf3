import { AppError, errorMessage } from '../../../schemas/errors.ts';
import type { BlockBody } from '../../../schemas/messages/chain-blocks.ts';
import { resolveContracts } from '../contract-facts.ts';
import type {
  IngestDeps,
  Lease,
  PublishedBlock,
  ReadPublishedBlock,
  RecordedBlock,
  Repair,
} from '../ports.ts';
import { publishRepaired } from '../publish.ts';

/** Milliseconds between checks for pending repairs. */
const REPAIR_POLL_MS = 2000;
const REPAIRS_PER_ROUND = 50;
/** A round ends after this long, so that following the chain is not delayed. */
const ROUND_MS = 1000;

type RepairDeps = IngestDeps & { readonly readPublishedBlock: ReadPublishedBlock };

interface Round {
  readonly done: number;
  readonly failed: readonly { readonly height: number; readonly reason: string }[];
  /** False if time ran out before the last repair. */
  readonly isComplete: boolean;
}

/**
 * Runs the repairs requested for a chunk: each block is reverted and accepted again under new seqs. `run` returns the
 * number of repairs done. Repairs whose block the projections have not indexed yet are postponed.
 */
export function createRepairer(deps: IngestDeps, lease: Lease): { run(): Promise<number> } {
  const { store, clock, log } = deps;
  const { start, end } = lease.chunk;
  let nextPollAt = 0;
  return {
    async run() {
      if (clock.now() < nextPollAt) return 0;
      const pending = await store.pendingRepairs({ start, end }, REPAIRS_PER_ROUND);
      const { done, failed, isComplete } = await runRound(deps, lease, pending);
      const [first] = failed;
      if (first !== undefined)
        log.warn({ chunk: lease.name, blocks: failed.length, ...first }, 'block repairs failed; postponed');
      // After a full page with progress there may be more, so the next round follows at once.
      if (isComplete && (pending.length < REPAIRS_PER_ROUND || done === 0))
        nextPollAt = clock.now() + REPAIR_POLL_MS;
      return done;
    },
  };
}

async function runRound(deps: IngestDeps, lease: Lease, pending: readonly Repair[]): Promise<Round> {
  const { store, clock } = deps;
  // One reader per round: only this lease holder publishes these heights, and each of them at most once per round.
  const readPublishedBlock = deps.createBlockReader(lease.signal);
  const deadline = clock.now() + ROUND_MS;
  const failed: { height: number; reason: string }[] = [];
  let done = 0;
  for (const repair of pending) {
    if (clock.now() > deadline) return { done, failed, isComplete: false };
    try {
      if (await repairBlock({ ...deps, readPublishedBlock }, lease, repair)) {
        done += 1;
        continue;
      }
    } catch (error) {
      if (lease.signal.aborted || (error instanceof AppError && error.code === 'LEASE_LOST')) throw error;
      failed.push({ height: repair.height, reason: errorMessage(error) });
    }
    // Otherwise repairs that keep failing would fill every page.
    await store.postponeRepair(lease, repair);
  }
  return { done, failed, isComplete: true };
}

/**
 * True when the repair is done, false to postpone it. A crash leaves it pending with every contracts map and body that may
 * be in the log stored, so the next attempt, or a reorg, reverts the block with each of them.
 */
async function repairBlock(deps: RepairDeps, lease: Lease, repair: Repair): Promise<boolean> {
  const { store, log } = deps;
  const { height, reread = false, replacesOrphan = false } = repair;
  const { cursor, plan } = await store.chunk(lease);
  if (height >= cursor) {
    // It may be in the log already, or be published as recorded, although the cursor has not passed it.
    const recorded = await store.recordedBlocks(lease.name, height, height);
    if (height <= plan.to || recorded.length > 0) return false;
    // Not indexed yet: its contracts are resolved when it is.
    await store.finishRepair(lease, repair, null);
    return true;
  }
  const published = await findPublished(deps, lease, height);
  if (published === 'unknown') return false;
  const earlierMaps = await store.repairMaps(height);
  // An earlier attempt may have reverted a final block without publishing it again.
  const isReverted = published === null && earlierMaps.length > 0;
  const isFetched = reread || isReverted;
  const body = isFetched ? await refetch(deps, lease, height, published) : (published?.body ?? null);
  if (body === null) return false;
  const refetched = isFetched ? body : undefined;
  const contracts = await resolveContracts(deps, body);
  await store.planRepair(lease, repair, contracts, refetched);
  // An earlier attempt may have published the refetched body: for final blocks nothing records that.
  const bodies = [
    ...(published === null ? [] : [published.body, ...(published.rereads ?? [])]),
    ...(refetched === undefined || earlierMaps.length === 0 ? [] : [refetched]),
  ];
  const maps = [...(published?.maps ?? []), ...earlierMaps];
  const cause = replacesOrphan ? 'reorg' : 'repair';
  await publishRepaired(deps, lease, { bodies, maps }, { block: body, contracts }, cause);
  await store.finishRepair(lease, repair, contracts, refetched);
  log.info({ chunk: lease.name, height, refetched: isFetched }, 'block repaired');
  return true;
}

/** Fetches the block from the node again; null if it is not certain to be the indexed chain's block at this height. */
async function refetch(
  { node, readPublishedBlock, log }: RepairDeps,
  lease: Lease,
  height: number,
  published: RecordedBlock | null,
): Promise<BlockBody | null> {
  const { body, status } = await node.getBlockWithReceipts(height, {
    signal: lease.signal,
    isSuspect: true,
  });
  if (published !== null) return published.body.hash === body.hash ? body : null;
  const below = await readFromLog(readPublishedBlock, height - 1);
  const above = await readFromLog(readPublishedBlock, height + 1);
  const isLinked =
    (below === null || below.block.hash === body.parent_hash) &&
    (above === null || above.block.parent_hash === body.hash);
  if (isLinked && status === 'ACCEPTED_ON_L1') return body;
  log.warn(
    { height, hash: body.hash, status, isLinked },
    'missing block not repaired: not final, or not linked',
  );
  return null;
}

/** null also if the message at the indexed offset is not this block. */
async function readFromLog(
  readPublishedBlock: ReadPublishedBlock,
  height: number,
): Promise<PublishedBlock | null> {
  if (height < 0) return null;
  try {
    return await readPublishedBlock(height);
  } catch (error) {
    if (error instanceof AppError && error.code === 'MESSAGE_INVALID') return null;
    throw error;
  }
}

/**
 * The accepted block that the log holds at a height, from the recorded blocks or the log itself; null if it holds none.
 * `unknown`: not certain yet. Publishing then could leave the height accepted twice.
 */
async function findPublished(
  { store, node, readPublishedBlock }: RepairDeps,
  lease: Lease,
  height: number,
): Promise<RecordedBlock | null | 'unknown'> {
  const [recorded] = await store.recordedBlocks(lease.name, height, height);
  if (recorded !== undefined) return recorded;
  const published = await readFromLog(readPublishedBlock, height);
  if (published === null) return null;
  // Lagging projections may still show a reverted block, and a lagging node may still have it. But a block without a record
  // was accepted on L1, which no node reports for an orphan.
  const { hash, status } = await node.getBlockHeader(height);
  const isCanonical = published.block.hash === hash && status === 'ACCEPTED_ON_L1';
  return isCanonical ? { body: published.block, maps: [published.contracts] } : 'unknown';
}
