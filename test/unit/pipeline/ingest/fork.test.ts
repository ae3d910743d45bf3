import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { compareWithHead, findFork, linkedLength } from '../../../../pipeline/ingest/fork.ts';
import type { BlockHeader, BlockId } from '../../../../pipeline/node/types.ts';
import { toFelt } from '../../../../schemas/felt.ts';

/** Block of a chain at a height: chains differ above their fork point. */
const hash = (chain: number, height: number) => toFelt((BigInt(chain) << 64n) | BigInt(height + 1));

/** Two chains that part above `fork`; the node answers from the one `view` names. */
function parted(fork: number, view: (call: number) => 'ours' | 'theirs' = () => 'theirs', l1 = -1) {
  let calls = 0;
  const at = (which: 'ours' | 'theirs', height: number) =>
    hash(height <= fork ? 0 : which === 'ours' ? 1 : 2, height);
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
    ours: (tip: number, floor: number, floorKnown = true, unsettled = false) => ({
      tip: () => ({ height: tip, hash: at('ours', tip) }),
      floor: () => ({ height: floor, hash: floorKnown ? at('ours', floor) : null }),
      hashAt: (height: number) =>
        height > tip || height < floor || (height === floor && !floorKnown) ? null : at('ours', height),
      isUnsettled: () => unsettled,
    }),
  };
}

describe('the fork point', () => {
  test('is found at any depth, at any disputed height above it', async () => {
    const heights = fc
      .tuple(fc.nat(200), fc.nat(200), fc.nat(200))
      .map((three) => three.toSorted((a, b) => a - b));
    await fc.assert(
      fc.asyncProperty(heights, fc.nat(50), async ([floor = 0, fork = 0, top = 0], above) => {
        const { node, ours } = parted(fork);
        const disputed = Math.max(top, fork + 1);
        expect(await findFork(node, ours(disputed + above, floor), disputed)).toBe(fork);
      }),
    );
  });

  test('1,500 deep costs about one call a block', async () => {
    const { node, ours, calls } = parted(1000);
    expect(await findFork(node, ours(2500, 900), 2500)).toBe(1000);
    expect(calls()).toBeLessThan(1530);
  });

  test('is the floor when nothing above is shared and the floor was never seen', async () => {
    const { node, ours } = parted(3);
    expect(await findFork(node, ours(20, 9, false), 20)).toBe(9);
  });

  test('is not decided on answers from two forks in turns', async () => {
    for (const period of [2, 3, 5]) {
      const { node, ours } = parted(50, (call) => (call % period === 0 ? 'ours' : 'theirs'));
      await expect(findFork(node, ours(60, 10), 60)).rejects.toMatchObject({
        code: 'NODE_INCONSISTENT',
        retryable: true,
      });
    }
  });

  test('is not decided when the node has come back to our chain, or leaves again while it is confirmed', async () => {
    const back = parted(50, () => 'ours');
    await expect(findFork(back.node, back.ours(60, 10), 60)).rejects.toMatchObject({
      code: 'NODE_INCONSISTENT',
    });
    const { node, ours } = parted(50, (call) => (call <= 16 ? 'theirs' : 'ours'));
    await expect(findFork(node, ours(60, 10), 60)).rejects.toMatchObject({ code: 'NODE_INCONSISTENT' });
  });

  test('below what is final is an alarm only when the node calls its own block final', async () => {
    const final = parted(5, () => 'theirs', 20);
    await expect(findFork(final.node, final.ours(30, 10), 30)).rejects.toMatchObject({
      code: 'REORG_BELOW_L1',
      retryable: false,
    });
    const behind = parted(5, () => 'theirs', 3);
    await expect(findFork(behind.node, behind.ours(30, 10), 30)).rejects.toMatchObject({
      code: 'NODE_INCONSISTENT',
    });
  });
});

describe('a head', () => {
  const { node, ours, at } = parted(50);
  const ourPoint = (height: number) => ({ height, hash: at('ours', height) });
  const theirPoint = (height: number) => ({ height, hash: at('theirs', height) });
  test.each([
    ['below our tip, ours', ours(60, 10), ourPoint(55), { kind: 'agreed', upTo: 55 }],
    ['below our tip, of another fork', ours(60, 10), theirPoint(55), { kind: 'disputed', at: 55 }],
    ['at our tip, replaced', ours(60, 10), theirPoint(60), { kind: 'disputed', at: 60 }],
    ['below all we hold', ours(60, 10), theirPoint(4), { kind: 'agreed', upTo: 4 }],
    ['above a settled tip', ours(60, 10), theirPoint(61), { kind: 'agreed', upTo: 60 }],
    [
      'above an unsettled tip, on another fork',
      ours(60, 10, true, true),
      theirPoint(61),
      { kind: 'disputed', at: 60 },
    ],
  ] as const)('%s', async (_, held, head, expected) => {
    expect(await compareWithHead(node, held, head)).toEqual(expected);
  });
});

test('only children of their parents are linked', () => {
  const chain = [1, 2, 3].map((height) => ({ hash: hash(0, height), parent_hash: hash(0, height - 1) }));
  const odd = { hash: hash(7, 2), parent_hash: hash(7, 1) };
  expect(linkedLength(chain, hash(0, 0))).toBe(3);
  expect(linkedLength(chain, null)).toBe(3);
  expect(linkedLength(chain, hash(9, 0))).toBe(0);
  expect(linkedLength([...chain.slice(0, 1), odd], hash(0, 0))).toBe(1);
  expect(linkedLength([], null)).toBe(0);
});
