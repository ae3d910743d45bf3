import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { compareWithHead, findFork, linkedLength } from '../../../../pipeline/ingest/fork.ts';
import type { BlockHeader, BlockId } from '../../../../pipeline/node/types.ts';
import { toFelt } from '../../../../schemas/felt.ts';

/** Hash of a block of a chain. */
const hash = (chain: number, height: number) => toFelt((BigInt(chain) << 64n) | BigInt(height + 1));

/** Two chains that differ above `fork`; the node answers each call from the one that `view` returns. */
function forkedChains(fork: number, view: (call: number) => 'indexed' | 'node' = () => 'node', l1 = -1) {
  let calls = 0;
  const at = (which: 'indexed' | 'node', height: number) =>
    hash(height <= fork ? 0 : which === 'indexed' ? 1 : 2, height);
  return {
    at,
    calls: () => calls,
    node: {
      async getBlockHeader(id: BlockId): Promise<BlockHeader> {
        calls += 1;
        const which = view(calls);
        const height = Number(id);
        return {
          height,
          hash: at(which, height),
          parentHash: at(which, height - 1),
          status: height <= l1 ? 'ACCEPTED_ON_L1' : 'ACCEPTED_ON_L2',
          timestamp: 0,
          transactionCount: null,
        };
      },
    },
    indexed: (tip: number, final: number, finalKnown = true, unconfirmed = false) => ({
      tip: () => ({ height: tip, hash: at('indexed', tip) }),
      final: () => ({ height: final, hash: finalKnown ? at('indexed', final) : null }),
      hashAt: (height: number) =>
        height > tip || height < final || (height === final && !finalKnown) ? null : at('indexed', height),
      hasUnconfirmed: () => unconfirmed,
    }),
  };
}

describe('findFork', () => {
  test('finds the fork at any depth, from any height above it where the chains differ', async () => {
    const heights = fc
      .tuple(fc.nat(200), fc.nat(200), fc.nat(200))
      .map((three) => three.toSorted((a, b) => a - b));
    await fc.assert(
      fc.asyncProperty(heights, fc.nat(50), async ([final = 0, fork = 0, top = 0], above) => {
        const { node, indexed } = forkedChains(fork);
        const mismatchAt = Math.max(top, fork + 1);
        expect(await findFork(node, indexed(mismatchAt + above, final), mismatchAt)).toBe(fork);
      }),
    );
  });

  test('makes about one call per block for a reorg 1,500 deep', async () => {
    const { node, indexed, calls } = forkedChains(1000);
    expect(await findFork(node, indexed(2500, 900), 2500)).toBe(1000);
    expect(calls()).toBeLessThan(1530);
  });

  test('returns the final block if nothing above it is shared and its hash is unknown', async () => {
    const { node, indexed } = forkedChains(3);
    expect(await findFork(node, indexed(20, 9, false), 20)).toBe(9);
  });

  test('rejects alternating answers from two forks', async () => {
    for (const period of [2, 3, 5]) {
      const { node, indexed } = forkedChains(50, (call) => (call % period === 0 ? 'indexed' : 'node'));
      await expect(findFork(node, indexed(60, 10), 60)).rejects.toMatchObject({
        code: 'NODE_INCONSISTENT',
        retryable: true,
      });
    }
  });

  test('rejects if the node is back on the indexed chain, or changes fork during confirmation', async () => {
    const back = forkedChains(50, () => 'indexed');
    await expect(findFork(back.node, back.indexed(60, 10), 60)).rejects.toMatchObject({
      code: 'NODE_INCONSISTENT',
    });
    const { node, indexed } = forkedChains(50, (call) => (call <= 16 ? 'node' : 'indexed'));
    await expect(findFork(node, indexed(60, 10), 60)).rejects.toMatchObject({ code: 'NODE_INCONSISTENT' });
  });

  test('throws REORG_BELOW_L1 only if the node shows its own block as final', async () => {
    const final = forkedChains(5, () => 'node', 20);
    await expect(findFork(final.node, final.indexed(30, 10), 30)).rejects.toMatchObject({
      code: 'REORG_BELOW_L1',
      retryable: false,
      message: expect.stringMatching(
        /; if the node is right, run tds revert 10 0x[0-9a-f]{64} and restart the ingester$/,
      ),
    });
    const behind = forkedChains(5, () => 'node', 3);
    await expect(findFork(behind.node, behind.indexed(30, 10), 30)).rejects.toMatchObject({
      code: 'NODE_INCONSISTENT',
    });
  });
});

describe('compareWithHead with a head', () => {
  const { node, indexed, at } = forkedChains(50);
  const indexedPoint = (height: number) => ({ height, hash: at('indexed', height) });
  const nodePoint = (height: number) => ({ height, hash: at('node', height) });
  test.each([
    ['below the tip, indexed', indexed(60, 10), indexedPoint(55), { kind: 'match', upTo: 55 }],
    ['below the tip, of another fork', indexed(60, 10), nodePoint(55), { kind: 'mismatch', at: 55 }],
    ['at the tip, replaced', indexed(60, 10), nodePoint(60), { kind: 'mismatch', at: 60 }],
    ['below all indexed blocks', indexed(60, 10), nodePoint(4), { kind: 'match', upTo: 4 }],
    ['above a confirmed tip', indexed(60, 10), nodePoint(61), { kind: 'match', upTo: 60 }],
    [
      'above an unconfirmed tip, on another fork',
      indexed(60, 10, true, true),
      nodePoint(61),
      { kind: 'mismatch', at: 60 },
    ],
  ] as const)('%s', async (_, chain, head, expected) => {
    expect(await compareWithHead(node, chain, head)).toEqual(expected);
  });
});

test('linkedLength counts leading blocks whose parent is the previous one', () => {
  const chain = [1, 2, 3].map((height) => ({ hash: hash(0, height), parent_hash: hash(0, height - 1) }));
  const odd = { hash: hash(7, 2), parent_hash: hash(7, 1) };
  expect(linkedLength(chain, hash(0, 0))).toBe(3);
  expect(linkedLength(chain, null)).toBe(3);
  expect(linkedLength(chain, hash(9, 0))).toBe(0);
  expect(linkedLength([...chain.slice(0, 1), odd], hash(0, 0))).toBe(1);
  expect(linkedLength([], null)).toBe(0);
});
