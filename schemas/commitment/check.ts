import { ZERO_FELT } from '../felt.ts';
import type { Felt } from '../felt.ts';
import type { BlockBody, EventCheck } from '../messages/chain-blocks.ts';
import { eventCommitment } from './events.ts';

/** The Starknet version that introduced this kind of commitment. */
const FIRST_VERSION = [0, 13, 2];

/** Compares the events of a block with the commitment in its header; null: the header has none. */
export function checkEvents(
  { starknet_version, transactions }: Pick<BlockBody, 'starknet_version' | 'transactions'>,
  commitment: Felt | null,
): EventCheck {
  if (isOlder(starknet_version)) return 'old_version';
  if (commitment === null) return 'no_commitment';
  // Nodes show zero for what they do not know; it is right only where there are no events.
  const hasEvents = transactions.some(({ events }) => events.length > 0);
  if (hasEvents && commitment === ZERO_FELT) return 'no_commitment';
  return eventCommitment(transactions) === commitment ? 'verified' : 'mismatched';
}

/** True also for the empty version of the first blocks. */
function isOlder(version: string): boolean {
  const parts = version.split('.').map(Number);
  const differing = FIRST_VERSION.findIndex((part, index) => parts[index] !== part);
  return differing !== -1 && !((parts[differing] ?? 0) > (FIRST_VERSION[differing] ?? 0));
}
