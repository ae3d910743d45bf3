import { AppError } from '../../../schemas/errors.ts';
import type { BlockBody } from '../../../schemas/messages/chain-blocks.ts';
import type { Lease } from '../lease.ts';
import type { ReadPublishedBlock, IngestDeps, PublishedBlock, RecordedBlock, Repair } from '../ports.ts';
import { publishRepaired, resolveContracts } from '../publish.ts';

/** Pause between looks at what is asked for. */
export const REPAIR_POLL_MS = 2000;
const REPAIRS_AT_ONCE = 50;
/** Then the chain is followed again, before more is repaired. */
const ROUND_MS = 1000;

type RepairDeps = IngestDeps & { readonly readPublishedBlock: ReadPublishedBlock };

/**
 * Carries out the repairs asked of a chunk, as its writer: each block is reverted and accepted again under seqs of its
 * own. The answer is how many were done; those whose block the projections do not know yet wait.
 */
export function createRepairer(deps: IngestDeps, lease: Lease): { run(): Promise<number> } {
  const { store, clock, log } = deps;
  const { start, end } = lease.taken;
  let lookAt = 0;
  return {
    async run() {
      if (clock.now() < lookAt) return 0;
      let done = 0;
      const pending = await store.pendingRepairs({ start, end }, REPAIRS_AT_ONCE);
      // Only this writer says anything about these heights, and each is repaired once a round: what it says meanwhile does
      // not make the bodies old.
      const readPublishedBlock = deps.createBlockReader();
      const until = clock.now() + ROUND_MS;
      let isWhole = true;
      const failed: { height: number; reason: string }[] = [];
      for (const repair of pending) {
        if (clock.now() > until) {
          isWhole = false;
          break;
        }
        try {
          if (await repairHeight({ ...deps, readPublishedBlock }, lease, repair)) {
            done += 1;
            continue;
          }
        } catch (error) {
          if (lease.signal.aborted || (error instanceof AppError && error.code === 'LEASE_LOST')) throw error;
          // It stays asked for; following the chain must not wait for it.
          failed.push({
            height: repair.height,
            reason: error instanceof Error ? error.message : String(error),
          });
        }
        // Those that cannot be done must not stand before the others.
        await store.postponeRepair(lease, repair);
      }
      if (failed.length > 0) {
        const [{ height, reason } = { height: 0, reason: '' }] = failed;
        log.warn({ chunk: lease.name, blocks: failed.length, height, reason }, 'blocks not repaired yet');
      }
      // More may be waiting behind a full page that was worked off.
      if (isWhole && (pending.length < REPAIRS_AT_ONCE || done === 0)) lookAt = clock.now() + REPAIR_POLL_MS;
      return done;
    },
  };
}

/**
 * A crash in between leaves the repair pending, with every map and every body that may be in the log written down: it is
 * done again whole, and reverts the block with each of them. So does a reorg that comes first.
 */
async function repairHeight(deps: RepairDeps, lease: Lease, repair: Repair): Promise<boolean> {
  const { store, log } = deps;
  const { cursor, plan } = await store.chunk(lease);
  if (repair.height >= cursor) {
    // It may be in the log, or be published as it was recorded, though the cursor is not past it.
    const recorded = await store.recordedBlocks(lease.name, repair.height, repair.height);
    if (repair.height <= plan.to || recorded.length > 0) return false;
    // Not indexed, or about to be settled: its contracts are looked up when it is.
    await store.finishRepair(lease, repair, null);
    return true;
  }
  const published = await publishedBlock(deps, lease, repair.height);
  if (published === 'not told yet') return false;
  const known = published === 'nothing' ? null : published;
  if (known === null && repair.reread !== true) return false;
  const again = repair.reread === true ? await readAgain(deps, lease, repair.height, known) : null;
  if (repair.reread === true && again === null) return false;
  const body = again ?? known?.body;
  if (body === undefined) return false;
  const fresh = await resolveContracts(deps, body);
  const begun = await store.repairMaps(repair.height);
  await store.planRepair(lease, repair, fresh, again ?? undefined);
  // If this was begun before, what was read again may be in the log already: what is final has no record of that.
  const bodies = [
    ...(known === null ? [] : [known.body, ...(known.rereads ?? [])]),
    ...(again === null || begun.length === 0 ? [] : [again]),
  ];
  const maps = [...(known?.maps ?? []), ...begun];
  await publishRepaired(deps, lease, { bodies, maps }, { block: body, contracts: fresh });
  await store.finishRepair(lease, repair, fresh, again ?? undefined);
  log.info({ chunk: lease.name, height: repair.height, reread: again !== null }, 'block repaired');
  return true;
}

/** The block as the node has it now; null where it is not the one that is ours at this height. */
async function readAgain(
  { node, readPublishedBlock, log }: RepairDeps,
  lease: Lease,
  height: number,
  known: RecordedBlock | null,
): Promise<BlockBody | null> {
  const { body, status } = await node.getBlockWithReceipts(height, { signal: lease.signal });
  if (known !== null) return known.body.hash === body.hash ? body : null;
  const below = await inLog(readPublishedBlock, height - 1);
  const above = await inLog(readPublishedBlock, height + 1);
  const isLinked =
    (below === null || below.block.hash === body.parent_hash) &&
    (above === null || above.block.parent_hash === body.hash);
  if (isLinked && status === 'ACCEPTED_ON_L1') return body;
  log.warn({ height, hash: body.hash, status, isLinked }, 'a block that is missing cannot be filled in yet');
  return null;
}

/** null also where the log does not hold what is indexed. */
async function inLog(readPublishedBlock: ReadPublishedBlock, height: number): Promise<PublishedBlock | null> {
  if (height < 0) return null;
  try {
    return await readPublishedBlock(height);
  } catch (error) {
    if (error instanceof AppError && error.code === 'MESSAGE_INVALID') return null;
    throw error;
  }
}

/**
 * What the log holds as accepted at a height: from our own record, else from the log. Where that cannot be told yet,
 * nothing may be filled in: what is there would be accepted twice.
 */
async function publishedBlock(
  { store, node, readPublishedBlock }: RepairDeps,
  lease: Lease,
  height: number,
): Promise<RecordedBlock | 'nothing' | 'not told yet'> {
  const [recorded] = await store.recordedBlocks(lease.name, height, height);
  if (recorded !== undefined) return recorded;
  const published = await inLog(readPublishedBlock, height);
  if (published === null) return 'nothing';
  // Projections that are behind may still name a block that was reverted, and a node that is behind may still have it.
  // What is not recorded any more was accepted on L1, which no node says of an orphan.
  const { hash, status } = await node.getBlockHeader(height);
  const isInForce = published.block.hash === hash && status === 'ACCEPTED_ON_L1';
  return isInForce ? { body: published.block, maps: [published.contracts] } : 'not told yet';
}
