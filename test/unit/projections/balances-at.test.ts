import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { balancesAt } from '../../../projections/balances-at.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';

const anchor = (block: number, balance: bigint) => {
  const hash = toFelt(BigInt(block));
  return { block, hash, balance, observedAt: 1, requestedAt: 1, isKept: true };
};
const noStore = { rows: () => Promise.reject(new Error('Not to be read.')) };
const noTables = { table: (name: string) => name };

describe('balancesAt', () => {
  it('computes again from another anchor if a reorg removes the chosen one while the ledger is read', async () => {
    const anchors = [anchor(20, 500n), anchor(10, 100n)];
    const indexed = new Map<number, Felt>(anchors.map(({ block, hash }) => [block, hash]));
    const read: number[] = [];
    const [found] = await balancesAt(
      {
        clickhouse: noStore,
        blocksAt: async (heights) =>
          new Map(
            heights.flatMap((height) => {
              const hash = indexed.get(height);
              return hash === undefined ? [] : [[height, { height, hash, timestamp: 0 }]];
            }),
          ),
        ledger: {
          async read(spans) {
            read.push(...[...spans].map(([, { after }]) => after));
            indexed.delete(20);
            return () => ({ delta: 7n, legs: 1 });
          },
        },
      },
      noTables,
      [{ account: toFelt(0xa11cen), token: toFelt(0xc01n), standard: 'erc20', anchors }],
      { points: [{ height: 30, run: { start: 5, end: 30 } }], head: 30 },
    );
    expect(found?.balances).toEqual([107n]);
    expect(read).toEqual([20, 10]);
  });

  it('uses an anchor above the head, which was read before it, and no leg', async () => {
    const above = anchor(11, 500n);
    const spans: unknown[] = [];
    const [found] = await balancesAt(
      {
        clickhouse: noStore,
        blocksAt: async () => new Map([[11, { height: 11, hash: above.hash, timestamp: 0 }]]),
        ledger: {
          async read(wanted) {
            spans.push(...wanted);
            return () => ({ delta: 7n, legs: 1 });
          },
        },
      },
      noTables,
      [{ account: toFelt(0xa11cen), token: toFelt(0xc01n), standard: 'erc20', anchors: [above] }],
      { points: [{ height: 10, run: { start: 0, end: 10 } }], head: 10 },
    );
    expect(found?.balances).toEqual([500n]);
    expect(spans).toEqual([]);
  });

  it('returns the balances of the chain, whatever was read of it, and none that do not follow from the index', async () => {
    const amount = fc.bigInt({ min: 0n, max: (1n << 255n) - 1n });
    const subject = fc.record({
      // After each block.
      balances: fc.array(fc.oneof(fc.constantFrom(0n, 1n), amount), { minLength: 30, maxLength: 30 }),
      reads: fc.uniqueArray(fc.nat({ max: 29 }), { maxLength: 4 }),
      orphans: fc.array(fc.record({ block: fc.nat({ max: 32 }), balance: amount }), { maxLength: 3 }),
    });
    const bounds = fc.uniqueArray(fc.nat({ max: 29 }), { minLength: 2, maxLength: 2 });
    const points = fc.array(fc.nat({ max: 29 }), { minLength: 1, maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(
        fc.array(subject, { minLength: 1, maxLength: 3 }),
        bounds,
        points,
        async (of, ends, at) => {
          const [low, end] = [Math.min(...ends), Math.max(...ends)];
          // Blocks below the run are indexed up to a gap, or not at all.
          const start = low < 10 ? 0 : low;
          const isIndexed = (height: number): boolean => height <= end && height !== start - 1;
          const heights = at.filter((height) => height <= end);
          const subjects = of.map(({ reads, orphans, balances }, i) => ({
            account: toFelt(BigInt(i + 1)),
            token: toFelt(0xc01n),
            standard: 'erc20' as const,
            anchors: [
              ...reads.filter(isIndexed).map((block) => anchor(block, balances[block] ?? 0n)),
              ...orphans.map(({ block, balance }) => ({ ...anchor(block, balance), hash: toFelt(0xdeadn) })),
            ].toSorted((a, b) => b.block - a.block),
          }));
          const found = await balancesAt(
            {
              clickhouse: noStore,
              blocksAt: async (asked) =>
                new Map(
                  asked
                    .filter(isIndexed)
                    .map((height) => [height, { height, hash: toFelt(BigInt(height)), timestamp: 0 }]),
                ),
              ledger: {
                read:
                  async () =>
                  (one, { after, upTo }) => {
                    const { balances } = of[Number(BigInt(one.account)) - 1] ?? { balances: [] };
                    // Of the missing block there is no leg.
                    const moved = balances
                      .map((balance, height) =>
                        isIndexed(height) ? balance - (balances[height - 1] ?? 0n) : 0n,
                      )
                      .filter((_, height) => height > after && height <= upTo);
                    const delta = moved.reduce((sum, by) => sum + by, 0n);
                    return { delta: BigInt.asIntN(256, delta), legs: moved.length };
                  },
              },
            },
            noTables,
            subjects,
            { points: heights.map((height) => ({ height, run: { start, end } })), head: end },
          );
          const isKnown = (reads: readonly number[]): boolean =>
            start === 0 || reads.some((block) => block >= start && block <= end);
          expect(found.map(({ balances }) => balances)).toEqual(
            of.map(({ balances, reads }) =>
              heights.map((height) => (height >= start && isKnown(reads) ? balances[height] : null)),
            ),
          );
        },
      ),
      { numRuns: 200 },
    );
  });
});
