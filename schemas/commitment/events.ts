import { toFelt } from '../felt.ts';
import type { Felt } from '../felt.ts';
import type { BlockTransaction, RawEvent } from '../messages/chain-blocks.ts';
import { feltOf, hashEdge, hashFelts, hashPair } from './poseidon.ts';
import type { Digest } from './poseidon.ts';

/** Height of the tree whose leaves are the events of a block, by index. */
const TREE_HEIGHT = 64;

/**
 * The `event_commitment` of a block's header, from Starknet 0.13.2 on: the root of a Patricia tree of height 64, whose
 * leaf at each event's index in the block is the hash of the event and its transaction. Zero without events.
 */
export function eventCommitment(transactions: readonly Pick<BlockTransaction, 'hash' | 'events'>[]): Felt {
  const leaves = transactions.flatMap(({ hash, events }) => events.map((event) => leafOf(hash, event)));
  return leaves.length === 0 ? toFelt(0n) : feltOf(nodeOver(leaves, TREE_HEIGHT));
}

function leafOf(transaction: Felt, { from_address, keys, data }: RawEvent): Digest {
  const length = (list: readonly Felt[]): Felt => toFelt(BigInt(list.length));
  return hashFelts([from_address, transaction, length(keys), ...keys, length(data), ...data]);
}

/** The node of this height over leaves at indexes 0, 1, 2 and so on. Where all of them are to the left, it is an edge. */
function nodeOver(leaves: readonly Digest[], height: number): Digest {
  const [first] = leaves;
  if (first === undefined) throw new RangeError('a node without leaves');
  const needed = 32 - Math.clz32(leaves.length - 1);
  if (needed < height) return hashEdge(nodeOver(leaves, needed), height - needed);
  if (height === 0) return first;
  const half = 2 ** (height - 1);
  return hashPair(nodeOver(leaves.slice(0, half), height - 1), nodeOver(leaves.slice(half), height - 1));
}
