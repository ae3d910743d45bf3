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
});
