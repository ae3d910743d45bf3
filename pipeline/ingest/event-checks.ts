import { hasEvents, outcomeWithoutHashing } from '../../schemas/commitment/check.ts';
import type { EventCheck } from '../../schemas/messages/chain-blocks.ts';
import type { CallOptions, FetchedBlock } from '../node/types.ts';
import { incomplete, mismatched } from './commitments.ts';
import type { CheckSettings, CommitmentComparison } from './commitments.ts';
import { PROBED } from './header-checks.ts';
import type { IngestNode } from './ports.ts';

interface EventCheckDeps extends CheckSettings {
  /** Blocks whose headers were compared. */
  readonly fetch: IngestNode['getBlockWithReceipts'];
  /** The height that the node has reported last. */
  readonly newest: () => number;
}

/**
 * Compares the events of blocks with the commitments in their headers, and records the outcome in the block and among its
 * comparisons. One verified version is enough to refuse mismatches of every version; otherwise a block could escape by naming a
 * version that does not exist. Before the first match, other blocks are compared to find one.
 */
export function createEventCheck(
  deps: EventCheckDeps,
): (
  block: FetchedBlock,
  comparisons: CommitmentComparison[],
  options: CallOptions | undefined,
) => Promise<FetchedBlock> {
  const { checks, mode, incomplete: policy, log, compute, fetch, newest } = deps;

  const compare = async ({ body, eventCommitment }: FetchedBlock): Promise<EventCheck> => {
    const unhashed = outcomeWithoutHashing(body, eventCommitment);
    if (unhashed !== null) return unhashed;
    const computed = await compute({ of: 'events', transactions: body.transactions });
    return computed === eventCommitment ? 'verified' : 'mismatched';
  };

  /** Whether another block matches: its neighbours, the newest, and the middle one. */
  const findMatch = async (height: number, options: CallOptions | undefined): Promise<boolean> => {
    const others = new Set([height - 1, height + 1, newest(), Math.floor(newest() / 2)]);
    for (const other of others) {
      if (other === height || other < 0) continue;
      const block = await fetch(other, options).catch(() => null);
      if (block === null || !hasEvents(block.body)) continue;
      if ((await compare(block)) !== 'verified') continue;
      checks.compared(block.body, [{ commitment: 'events', outcome: 'verified', isConclusive: true }]);
      return true;
    }
    return false;
  };
  /** Shared by the blocks that are fetched meanwhile. */
  let finding: Promise<boolean> | null = null;
  const isKnownElsewhere = async (height: number, options: CallOptions | undefined): Promise<boolean> => {
    finding ??= findMatch(height, options).finally(() => (finding = null));
    return await finding;
  };
  const isRefused = async (height: number, options: CallOptions | undefined): Promise<boolean> => {
    if (mode === 'refuse' || mode === 'record') return mode === 'refuse';
    if (await checks.isEnforced('events', null)) return true;
    return checks.mismatchesInARow('events') < PROBED && (await isKnownElsewhere(height, options));
  };
  return async (block, comparisons, options) => {
    const { body } = block;
    const { height, hash } = body;
    const found = await compare(block);
    const outcome = found === 'verified' && block.isBound === false ? 'no_commitment' : found;
    const isIncomplete = outcome === 'no_commitment';
    if (outcome === 'mismatched' && (await isRefused(height, options))) {
      await checks.refused(body, { commitment: 'events', isConclusive: true });
      throw mismatched(body, 'events');
    }
    if (
      isIncomplete &&
      policy === 'refuse' &&
      mode !== 'record' &&
      (await checks.isEnforced('events', null))
    ) {
      await checks.refused(body, { commitment: 'events', isConclusive: true });
      throw incomplete(body, 'events');
    }
    if (outcome === 'mismatched' && checks.mismatchesInARow('events') === 0)
      log.warn({ height, hash }, 'events of a block do not match the commitment in its header');
    comparisons.push({
      commitment: 'events',
      outcome: isIncomplete ? 'incomplete' : outcome,
      isConclusive: outcome !== 'old_version' && hasEvents(body),
    });
    return { ...block, body: { ...body, event_check: outcome } };
  };
}
