import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import {
  addDelta,
  chooseBasis,
  hasDeltas,
  balancesBackward,
  sumAsBalance,
} from '../../../schemas/balance.ts';
import type { PairFacts } from '../../../schemas/balance.ts';
import { valueText } from '../../../schemas/money.ts';
import { U256, ZERO_FELT, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';

const coin = { account: toFelt(0xa11cen), standard: 'erc20' as const };
const hash = (height: number, fork = 0) => toFelt(BigInt(height * 10 + fork + 1));
const anchor = (block: number, fork = 0) => ({ block, hash: hash(block, fork) });
const indexed = (one: { block: number; hash: Felt }) => one.hash === hash(one.block);

describe('balance basis', () => {
  const run = { start: 10, end: 100 };

  it('is the nearest anchor, below or above the height', () => {
    const anchors = [anchor(90), anchor(60), anchor(20)];
    const at = (height: number) => chooseBasis(coin, anchors, indexed, run, height);
    expect(at(100)).toEqual({ from: 'anchor', anchor: anchors[0] });
    expect(at(62)).toEqual({ from: 'anchor', anchor: anchors[1] });
    expect(at(12)).toEqual({ from: 'anchor', anchor: anchors[2] });
    expect(at(75)).toEqual({ from: 'anchor', anchor: anchors[0] });
  });

  it('is the later of two anchors at the same distance', () => {
    for (const anchors of [
      [anchor(40), anchor(60)],
      [anchor(60), anchor(40)],
    ])
      expect(chooseBasis(coin, anchors, indexed, run, 50)).toEqual({ from: 'anchor', anchor: anchor(60) });
  });

  it('is never an anchor of an orphaned or unindexed block, or beyond a gap', () => {
    const anchors = [anchor(101), anchor(90, 1), anchor(50), anchor(9)];
    expect(chooseBasis(coin, anchors, indexed, run, 100)).toEqual({ from: 'anchor', anchor: anchors[2] });
    expect(
      chooseBasis(
        coin,
        [anchors[0], anchors[1], anchors[3]].flatMap((one) => one ?? []),
        indexed,
        run,
        100,
      ),
    ).toEqual({
      from: 'nothing',
    });
    expect(chooseBasis(coin, anchors, () => false, run, 100)).toEqual({ from: 'nothing' });
  });

  it('is block 0 only if every block from there on is indexed', () => {
    expect(chooseBasis(coin, [], indexed, { start: 0, end: 100 }, 100)).toEqual({ from: 'first block' });
    expect(chooseBasis(coin, [], indexed, { start: 1, end: 100 }, 100)).toEqual({ from: 'nothing' });
  });

  it('is only an anchor for unknown contracts and the zero address', () => {
    for (const facts of [
      { ...coin, standard: 'unknown' as const },
      { ...coin, account: ZERO_FELT },
    ]) {
      expect(hasDeltas(facts)).toBe(false);
      expect(chooseBasis(facts, [], indexed, { start: 0, end: 100 }, 100)).toEqual({ from: 'nothing' });
      expect(chooseBasis(facts, [anchor(50), anchor(5)], indexed, run, 100)).toMatchObject({
        anchor: { block: 50 },
      });
      expect(chooseBasis(facts, [anchor(5)], indexed, run, 100)).toMatchObject({ anchor: { block: 5 } });
    }
  });

  it('is never an anchor for an ERC-1155', () => {
    const facts = { ...coin, standard: 'erc1155' as const };
    expect(chooseBasis(facts, [anchor(50)], indexed, run, 100)).toEqual({ from: 'nothing' });
    expect(chooseBasis(facts, [anchor(50)], indexed, { start: 0, end: 100 }, 100)).toEqual({
      from: 'first block',
    });
  });
});

describe('balances and deltas', () => {
  const wrap = (value: bigint) => BigInt.asIntN(256, value);
  const amount = fc.bigInt({ min: 0n, max: (1n << 255n) - 1n });

  it('are exact in both directions and never negative', () => {
    fc.assert(
      fc.property(amount, fc.array(fc.bigInt({ min: -(1n << 200n), max: 1n << 200n })), (start, moves) => {
        // Forward with plain integers; what would go below nothing is left out.
        const balances: bigint[] = [];
        const made: bigint[] = [];
        let balance = start;
        for (const move of moves) {
          if (balance + move < 0n || balance + move >= U256) continue;
          balance += move;
          made.unshift(wrap(move));
          balances.unshift(balance);
        }
        expect(balancesBackward(balance, made)).toEqual(balances);
      }),
    );
  });

  it('end before a negative balance', () => {
    expect(balancesBackward(5n, [3n, 2n, 1n, 1n])).toEqual([5n, 2n, 0n]);
    expect(addDelta(4n, -5n)).toBe(null);
    expect(addDelta(U256 - 1n, 1n)).toBe(null);
    expect(addDelta(U256 - 5n, 4n)).toBe(U256 - 1n);
    const sum = (delta: bigint, legs = 1, facts: PairFacts = coin) => sumAsBalance(facts, { delta, legs });
    expect(sum(-1n)).toBe(null);
    expect(sum(wrap(1n << 255n))).toBe(null);
    expect(sum((1n << 255n) - 1n)).toBe((1n << 255n) - 1n);
    expect(sum(0n, 0)).toBe(0n);
    expect(sum(0n, 0, { ...coin, standard: null })).toBe(null);
    expect(sum(0n, 2, { ...coin, standard: null })).toBe(0n);
  });
});

describe('value of a balance', () => {
  it.each([
    [1_500_000n, 6, '1', '1.5'],
    [0n, 18, '3210.55', '0'],
    [1n, 18, '3210.55', '0.00000000000000321055'],
    [12n, 0, '0.5', '6'],
    [10n ** 18n, 18, '99999999999999999999.25', '99999999999999999999.25'],
    [7n, 2, 'NaN', null],
    [7n, 2, '-1', null],
  ] as const)('%s of %s decimals at %s', (balance, decimals, price, expected) => {
    expect(valueText(balance, decimals, price)).toBe(expected);
  });
});
