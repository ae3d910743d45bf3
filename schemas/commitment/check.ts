import { ZERO_FELT } from '../felt.ts';
import type { Felt } from '../felt.ts';
import type { BlockBody, EventCheck } from '../messages/chain-blocks.ts';
import { eventCommitment } from './events.ts';
import { FIRST_WITH_COMMITMENTS, isOlderThan } from './versions.ts';

/** Compares the events of a block with the commitment in its header; null: the header has none. */
export function checkEvents(
  { starknet_version, transactions }: Pick<BlockBody, 'starknet_version' | 'transactions'>,
  commitment: Felt | null,
): EventCheck {
  if (isOlderThan(starknet_version, FIRST_WITH_COMMITMENTS)) return 'old_version';
  if (commitment === null) return 'no_commitment';
  // Nodes show zero for what they do not know; it is right only where there are no events.
  const hasEvents = transactions.some(({ events }) => events.length > 0);
  if (hasEvents && commitment === ZERO_FELT) return 'no_commitment';
  return eventCommitment(transactions) === commitment ? 'verified' : 'mismatched';
}
