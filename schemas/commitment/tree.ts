import { toFelt } from '../felt.ts';
import type { Felt } from '../felt.ts';
import { feltOf, hashEdge, hashPair } from './poseidon.ts';
import type { Digest } from './poseidon.ts';

/** Height of the trees whose leaves are the transactions, events or receipts of a block, by index. */
const TREE_HEIGHT = 64;

/**
 * A step from a leaf towards the root: to the hash of the node and its sibling, `side` being that of the node; or along an edge,
 * which leads to the node by the `length` bits of its path.
 */
export type PathStep =
  | { readonly kind: 'binary'; readonly side: 'left' | 'right'; readonly sibling: Felt }
  | { readonly kind: 'edge'; readonly length: number; readonly bits: Felt };

/** A Patricia tree of height 64 with a leaf at each index. */
export interface Tree {
  readonly leaves: number;
  /** Zero without leaves. */
  readonly root: Felt;
  pathOf(index: number): PathStep[];
}

/** A node of the tree, below an edge of zeroes that leads to it. */
interface Node {
  readonly digest: Digest;
  readonly edge: number;
}

/** Hashes leaves up to the root. It yields between hashes, each of which takes some microseconds. */
export function* growTree(digests: Iterable<Digest>): Generator<void, Tree, void> {
  const leaves: Node[] = [];
  for (const digest of digests) {
    leaves.push({ digest, edge: 0 });
    yield;
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
    leaves: leaves.length,
    root: highest === undefined ? toFelt(0n) : hashOf({ digest: highest.digest, edge: height }),
    pathOf: (index) => pathOf(levels, index),
  };
}

/** The root of the tree over leaves. */
export function rootOf(digests: Iterable<Digest>): Felt {
  const work = growTree(digests);
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value.root;
  }
}

/** Where all leaves are to the left, the node continues an edge. */
function parentOf(left: Node | undefined, right: Node | undefined): Node {
  if (left === undefined) throw new RangeError('a node without leaves');
  if (right === undefined) return { digest: left.digest, edge: left.edge + 1 };
  return { digest: hashPair(digestOf(left), digestOf(right)), edge: 0 };
}

function pathOf(levels: readonly (readonly Node[])[], index: number): PathStep[] {
  if (levels[0]?.[index] === undefined) throw new RangeError(`no leaf ${index}`);
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
