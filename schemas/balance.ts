import { U256, ZERO_FELT } from './felt.ts';
import type { Felt } from './felt.ts';
import type { TokenStandard } from './messages/common.ts';

/**
 * What a balance is worked out from. A balance read from the chain at a block (an anchor) is good while that block is the
 * indexed one; from it, the deltas lead to any height that every block in between is indexed for. Without one the sum of
 * all deltas is the balance, where they reach back to the first block of the chain. Everything else is unknown: no number
 * is ever made up, and none is negative.
 */
export type Basis<A> =
  | { readonly from: 'anchor'; readonly anchor: A }
  | { readonly from: 'first block' }
  | { readonly from: 'nothing' };

/** Blocks that are all indexed, both inclusive. */
export interface IndexedRange {
  readonly start: number;
  readonly end: number;
}

/** What of a pair says how its balance may be worked out. `standard` null: nobody has said it yet. */
export interface PairFacts {
  readonly account: Felt;
  readonly standard: TokenStandard | null;
}

/** Whether transfers say what a balance does. Of an unknown contract they may not, and a mint takes from nobody. */
export function hasDeltas({ account, standard }: PairFacts): boolean {
  return standard !== 'unknown' && account !== ZERO_FELT;
}

/** Whether the chain can be asked: an ERC-1155 tells a balance of one id only. */
export function isReadable({ standard }: PairFacts): boolean {
  return standard !== 'erc1155';
}

/**
 * The basis of a balance at `height`, which lies in `run`: the anchor nearest to it, the later of two as near, and only
 * else the first block: a token may mint without events, or rebase, so what the chain said goes before the sum. Where
 * there are no deltas, an anchor tells of its own block alone, and is the last that is known.
 */
export function chooseBasis<A extends { readonly block: number; readonly hash: Felt }>(
  facts: PairFacts,
  anchors: readonly A[],
  blockHash: (height: number) => Felt | undefined,
  run: IndexedRange,
  height: number,
): Basis<A> {
  const counts = hasDeltas(facts);
  const good = isReadable(facts)
    ? anchors.filter(
        ({ block, hash }) => block <= run.end && (!counts || block >= run.start) && blockHash(block) === hash,
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
  return run.start === 0 && counts ? { from: 'first block' } : { from: 'nothing' };
}

/** A balance plus a delta (modulo 2^256); null where that is negative, or more than a balance can be. */
export function addDelta(balance: bigint, delta: bigint): bigint | null {
  const sum = balance + BigInt.asIntN(256, delta);
  return sum < 0n || sum >= U256 ? null : sum;
}

/**
 * The sum of all legs as a balance. One of 2^255 or more cannot be told from a negative one, and is unknown. So is that of
 * no leg at all while nobody has said what the contract is: an unknown one has none, whatever it moved.
 */
export function sumAsBalance(
  { standard }: PairFacts,
  { delta, legs }: { readonly delta: bigint; readonly legs: number },
): bigint | null {
  return standard === null && legs === 0 ? null : addDelta(0n, delta);
}

/** The legs between what a balance is worked out from and a height: those above `after`, up to `upTo`. */
export function legsBetween(
  basis: Basis<{ readonly block: number }>,
  height: number,
): { readonly after: number; readonly upTo: number } {
  if (basis.from !== 'anchor') return { after: -1, upTo: height };
  const { block } = basis.anchor;
  return block > height ? { after: height, upTo: block } : { after: block, upTo: height };
}

/** The balance after a height, by what those legs moved; null: unknown. */
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
 * The balance right after each of some transfers, given newest first, going backward from the balance after the newest.
 * Ends before the first that is unknown.
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
