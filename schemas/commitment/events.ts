import { toFelt } from '../felt.ts';
import type { Felt } from '../felt.ts';
import type { BlockTransaction } from '../messages/chain-blocks.ts';
import { hashFelts } from './poseidon.ts';
import type { Digest } from './poseidon.ts';
import { growTree, rootOf } from './tree.ts';
import type { Tree } from './tree.ts';

export type HashedTransaction = Pick<BlockTransaction, 'hash' | 'events'>;

/**
 * The `event_commitment` of a block's header, from Starknet 0.13.2 on: the root of a tree whose leaf at each event's index in
 * the block is the hash of the event and its transaction.
 */
export function eventCommitment(transactions: readonly HashedTransaction[]): Felt {
  return rootOf(leavesOf(transactions));
}

/** The tree of the events of a block; yields between hashes. */
export function hashEvents(transactions: readonly HashedTransaction[]): Generator<void, Tree, void> {
  return growTree(leavesOf(transactions));
}

function* leavesOf(transactions: readonly HashedTransaction[]): Generator<Digest> {
  for (const { hash, events } of transactions) {
    for (const { from_address, keys, data } of events)
      yield hashFelts([from_address, hash, lengthOf(keys), ...keys, lengthOf(data), ...data]);
  }
}

const lengthOf = (list: readonly Felt[]): Felt => toFelt(BigInt(list.length));
