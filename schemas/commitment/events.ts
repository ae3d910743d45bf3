import { toFelt } from '../felt.ts';
import type { Felt } from '../felt.ts';
import type { BlockTransaction, RawEvent } from '../messages/chain-blocks.ts';
import { feltOf, hashEdge, hashFelts, hashPair } from './poseidon.ts';
import type { Digest } from './poseidon.ts';

/** Height of the tree whose leaves are the events of a block, by index. */
const TREE_HEIGHT = 64;

export type HashedTransaction = Pick<BlockTransaction, 'hash' | 'events'>;

/**
 * A step from a leaf towards the root: to the hash of the node and its sibling, `side` being that of the node; or along an edge,
 * which leads to the node by the `length` bits of its path.
 */
export type PathStep =
  | { readonly kind: 'binary'; readonly side: 'left' | 'right'; readonly sibling: Felt }
  | { readonly kind: 'edge'; readonly length: number; readonly bits: Felt };

/** The hashes of the events of a block, up to the root. */
export interface EventTree {
  readonly events: number;
  readonly root: Felt;
  pathOf(index: number): PathStep[];
}

/**
 * The `event_commitment` of a block's header, from Starknet 0.13.2 on: the root of a Patricia tree of height 64, whose
 * leaf at each event's index in the block is the hash of the event and its transaction. Zero without events.
 */
export function eventCommitment(transactions: readonly HashedTransaction[]): Felt {
  const work = hashEvents(transactions);
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value.root;
  }
}

/** A node of the tree, below an edge of zeroes that leads to it. */
interface Node {
  readonly digest: Digest;
  readonly edge: number;
}

/** Hashes the events of a block. It yields between hashes, each of which takes some microseconds. */
export function* hashEvents(transactions: readonly HashedTransaction[]): Generator<void, EventTree, void> {
  const leaves: Node[] = [];
  for (const { hash, events } of transactions) {
    for (const event of events) {
      leaves.push({ digest: leafOf(hash, event), edge: 0 });
      yield;
    }
  }
  const levels = [leaves];
  let top = leaves;
  while (top.length > 1) {
    const next: Node[] = [];
    for (let at = 0; at < top.length; at += 2) {
      next.push(parentOf(top[at], top[at + 1]));
      yield;
    }
    levels.push(next);
    top = next;
  }
  // Indexes have leading zeroes: an edge leads from the root to the lowest node that is above all leaves.
  const height = TREE_HEIGHT - (levels.length - 1);
  const [highest] = top;
  return {
    events: leaves.length,
    root: highest === undefined ? toFelt(0n) : hashOf({ digest: highest.digest, edge: height }),
    pathOf: (index) => pathOf(levels, index),
  };
}

function leafOf(transaction: Felt, { from_address, keys, data }: RawEvent): Digest {
  const length = (list: readonly Felt[]): Felt => toFelt(BigInt(list.length));
  return hashFelts([from_address, transaction, length(keys), ...keys, length(data), ...data]);
}

/** Where all leaves are to the left, the node continues an edge. */
function parentOf(left: Node | undefined, right: Node | undefined): Node {
  if (left === undefined) throw new RangeError('a node without leaves');
  if (right === undefined) return { digest: left.digest, edge: left.edge + 1 };
  return { digest: hashPair(digestOf(left), digestOf(right)), edge: 0 };
}

function pathOf(levels: readonly (readonly Node[])[], index: number): PathStep[] {
  if (levels[0]?.[index] === undefined) throw new RangeError(`no event ${index}`);
  const steps: PathStep[] = [];
  let edge = 0;
  const endEdge = (): void => {
    if (edge > 0) steps.push({ kind: 'edge', length: edge, bits: toFelt(0n) });
    edge = 0;
  };
  let at = index;
  for (const level of levels.slice(0, -1)) {
    const sibling = level[at % 2 === 0 ? at + 1 : at - 1];
    if (sibling === undefined) edge += 1;
    else {
      endEdge();
      steps.push({ kind: 'binary', side: at % 2 === 0 ? 'left' : 'right', sibling: hashOf(sibling) });
    }
    at = Math.floor(at / 2);
  }
  edge += TREE_HEIGHT - (levels.length - 1);
  endEdge();
  return steps;
}

const digestOf = ({ digest, edge }: Node): Digest => (edge === 0 ? digest : hashEdge(digest, edge));
const hashOf = (node: Node): Felt => feltOf(digestOf(node));
