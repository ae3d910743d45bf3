import { U256, ZERO_FELT } from './felt.ts';
import type { Felt } from './felt.ts';
import type { TokenStandard } from './messages/common.ts';

/**
 * What a balance is computed from. A balance read from the chain at a block (an anchor) is valid while that block is the
 * indexed one at its height; with all blocks in between indexed, adding the deltas gives the balance at any other height.
 * Without an anchor the sum of all deltas is the balance, if the index reaches back to block 0. Any other balance is
 * unknown: none is guessed, and none is negative.
 */
export type Basis<A> =
  | { readonly from: 'anchor'; readonly anchor: A }
  | { readonly from: 'first block' }
  | { readonly from: 'nothing' };

/** Heights without a gap in the index, both inclusive. */
export interface IndexedRange {
  readonly start: number;
  readonly end: number;
}

/** What decides how the balance of an account in a token may be computed. `standard` null: not classified yet. */
export interface PairFacts {
  readonly account: Felt;
  readonly standard: TokenStandard | null;
}

/**
 * Whether transfers determine the balance: not for an unknown contract, whose events may be anything, and not for the zero
 * address, which mints take from.
 */
export function hasDeltas({ account, standard }: PairFacts): boolean {
  return standard !== 'unknown' && account !== ZERO_FELT;
}

/** Whether the chain can be asked for the balance: an ERC-1155 answers for a single id only. */
export function isReadable({ standard }: PairFacts): boolean {
  return standard !== 'erc1155';
}

/**
 * The basis of a balance at `height`, which lies in `range`: the nearest valid anchor (of two at the same distance the
 * later), else block 0. Anchors go first because a token may mint without events, or rebase. Without deltas an anchor is
 * valid for its own block only and stands as the last known balance.
 */
export function chooseBasis<A extends { readonly block: number }>(
  facts: PairFacts,
  anchors: readonly A[],
  isIndexed: (anchor: A) => boolean,
  range: IndexedRange,
  height: number,
): Basis<A> {
  const counts = hasDeltas(facts);
  const good = isReadable(facts)
    ? anchors.filter(
        (anchor) =>
          anchor.block <= range.end && (!counts || anchor.block >= range.start) && isIndexed(anchor),
      )
    : [];
  const distance = ({ block }: A): number => Math.abs(block - height);
  const nearest = good.reduce<A | undefined>(
    (best, one) =>
      best === undefined ||
      distance(one) < distance(best) ||
      (distance(one) === distance(best) && one.block > best.block)
        ? one
        : best,
    undefined,
  );
  if (nearest !== undefined) return { from: 'anchor', anchor: nearest };
  return range.start === 0 && counts ? { from: 'first block' } : { from: 'nothing' };
}

/** A balance plus a delta (modulo 2^256); null if the sum is negative or exceeds 256 bits. */
export function addDelta(balance: bigint, delta: bigint): bigint | null {
  const sum = balance + BigInt.asIntN(256, delta);
  return sum < 0n || sum >= U256 ? null : sum;
}

/**
 * The sum of all legs as a balance; null if unknown. A sum of 2^255 or more is indistinguishable from a negative one. A pair
 * without legs is unknown until the contract is classified, since events of an unknown contract make no legs.
 */
export function sumAsBalance(
  { standard }: PairFacts,
  { delta, legs }: { readonly delta: bigint; readonly legs: number },
): bigint | null {
  return standard === null && legs === 0 ? null : addDelta(0n, delta);
}

/** The heights whose legs lie between the basis and `height`: above `after`, up to `upTo`. */
export function legsBetween(
  basis: Basis<{ readonly block: number }>,
  height: number,
): { readonly after: number; readonly upTo: number } {
  if (basis.from !== 'anchor') return { after: -1, upTo: height };
  const { block } = basis.anchor;
  return block > height ? { after: height, upTo: block } : { after: block, upTo: height };
}

/** The balance after a height, given the sum of those legs; null: unknown. */
export function balanceAt(
  basis: Basis<{ readonly block: number; readonly balance: bigint }>,
  facts: PairFacts,
  height: number,
  moved: { readonly delta: bigint; readonly legs: number },
): bigint | null {
  if (basis.from === 'nothing') return null;
  if (basis.from === 'first block') return sumAsBalance(facts, moved);
  const { block, balance } = basis.anchor;
  return addDelta(balance, block > height ? -moved.delta : moved.delta);
}

/**
 * The balance after each transfer, computed backward from the balance after the newest. `deltas` are newest first. Ends at
 * the first unknown balance.
 */
export function balancesBackward(balance: bigint, deltas: Iterable<bigint>): bigint[] {
  const found: bigint[] = [];
  let after: bigint | null = balance;
  for (const delta of deltas) {
    if (after === null) break;
    found.push(after);
    after = addDelta(after, -delta);
  }
  return found;
}
