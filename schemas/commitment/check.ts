import { ZERO_FELT } from '../felt.ts';
import type { Felt } from '../felt.ts';
import type { BlockBody, EventCheck } from '../messages/chain-blocks.ts';
import { eventCommitment } from './events.ts';
import { FIRST_WITH_COMMITMENTS, isOlderThan } from './versions.ts';

type CheckedBlock = Pick<BlockBody, 'starknet_version' | 'transactions'>;

/** Compares the events of a block with the commitment in its header; null: the header has none. */
export function checkEvents(block: CheckedBlock, commitment: Felt | null): EventCheck {
  const unhashed = outcomeWithoutHashing(block, commitment);
  return unhashed ?? (eventCommitment(block.transactions) === commitment ? 'verified' : 'mismatched');
}

/** The outcome where the events cannot be compared; null where they can. */
export function outcomeWithoutHashing(
  { starknet_version, transactions }: CheckedBlock,
  commitment: Felt | null,
): EventCheck | null {
  if (isOlderThan(starknet_version, FIRST_WITH_COMMITMENTS)) return 'old_version';
  return isCommitment(commitment, transactions) ? null : 'no_commitment';
}

/** Whether the header of a block has a commitment that its events can be compared with. */
export function hasCommitment({ starknet_version, header, transactions }: BlockBody): boolean {
  const commitment = header?.event_commitment ?? null;
  return !isOlderThan(starknet_version, FIRST_WITH_COMMITMENTS) && isCommitment(commitment, transactions);
}

/** Nodes show zero for what they do not know; it is right only where there are no events. */
function isCommitment(commitment: Felt | null, transactions: BlockBody['transactions']): commitment is Felt {
  return commitment === ZERO_FELT ? !hasEvents({ transactions }) : commitment !== null;
}

export function hasEvents({ transactions }: Pick<BlockBody, 'transactions'>): boolean {
  return transactions.some(({ events }) => events.length > 0);
}
