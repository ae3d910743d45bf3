import type { CheckSettings, CommitmentComparison } from './commitments.ts';
import type { Clock } from '../../infra/clock.ts';
import type { BlockId, CallOptions, FetchedBlock } from '../node/types.ts';
import { createEventCheck } from './event-checks.ts';
import { createHeaderCheck } from './header-checks.ts';
import type { IsLeftOut } from './header-checks.ts';
import type { IngestNode } from './ports.ts';

export interface BlockCheckDeps extends CheckSettings {
  readonly node: IngestNode;
  readonly clock: Pick<Clock, 'wallTime'>;
}

/** So many mismatches in a row show a chain with other commitments: from then on one block in `SAMPLED_EVERY` is compared. */
const SAMPLE_AFTER_MISMATCHES = 64;
/**
 * Blocks within `LATEST` heights of the head, or younger than `RECENT_SECONDS`, are always compared: a node can report a false
 * head.
 */
const LATEST = 64;
const RECENT_SECONDS = 600;
const SAMPLED_EVERY = 16;

/**
 * A node whose blocks are compared with their hashes and with the commitments to their transactions, events and receipts.
 *
 * A chain with other commitments (a development chain, or one that claims a newer version) can be indexed: none of its blocks
 * ever matches. Once a block has matched, one that does not is altered or incomplete: it is refused and fetched again.
 */
export function withBlockChecks({ node, clock, ...settings }: BlockCheckDeps): IngestNode {
  const { mode, checks } = settings;
  /** The height that the node has reported last: one false head must not end the comparison. */
  let newest = 0;
  const isLeftOut: IsLeftOut = ({ height, timestamp }, commitment, { isSuspect = false } = {}) => {
    if (isSuspect) return false;
    const isFarBelow = height < newest - LATEST && timestamp < clock.wallTime() / 1000 - RECENT_SECONDS;
    if (mode === 'head' && isFarBelow) return true;
    if (height % SAMPLED_EVERY === 0) return false;
    if (mode === 'sample' && isFarBelow) return true;
    return mode !== 'refuse' && checks.mismatchesInARow(commitment) >= SAMPLE_AFTER_MISMATCHES;
  };
  const checkHeader = createHeaderCheck({ ...settings, isLeftOut, fetch: node.getBlockWithReceipts });
  const fetch = async (
    id: BlockId,
    comparisons: CommitmentComparison[],
    options?: CallOptions,
  ): Promise<FetchedBlock> => {
    const { details, ...block } = await node.getBlockWithReceipts(id, options);
    return mode === 'off' ? block : await checkHeader(block, details, comparisons, options);
  };
  /** Blocks that others are compared with: their own comparisons do not count. */
  const fetchOther: IngestNode['getBlockWithReceipts'] = async (id, options) => await fetch(id, [], options);
  const checkEvents = createEventCheck({ ...settings, fetch: fetchOther, newest: () => newest });
  return {
    ...node,
    async blockHashAndNumber(...args) {
      const found = await node.blockHashAndNumber(...args);
      newest = found?.height ?? newest;
      return found;
    },
    async getBlockHeader(id, options) {
      const header = await node.getBlockHeader(id, options);
      if (id === 'latest') newest = header.height;
      return header;
    },
    async getBlockWithReceipts(id, options) {
      const comparisons: CommitmentComparison[] = [];
      const fetched = await fetch(id, comparisons, options);
      if (mode === 'off') return fetched;
      const isWhole = !isLeftOut(fetched.body, 'events', options);
      const block = isWhole ? await checkEvents(fetched, comparisons, options) : fetched;
      checks.compared(block.body, comparisons);
      return block;
    },
  };
}
