import fc from 'fast-check';
import { expect, test } from 'vitest';

import { RpcError } from '../../../../pipeline/node/errors.ts';
import { bisectL1, createL1Finder } from '../../../../pipeline/node/capabilities.ts';
import type { BlockHeader, BlockId } from '../../../../pipeline/node/types.ts';
import { toFelt } from '../../../../schemas/felt.ts';

/** A node that has the blocks from `lowest` to `head`, accepted on L1 up to `l1`; with or without the `l1_accepted` tag. */
function chain(head: number, l1: number, tag: 'supported' | 'unsupported' = 'unsupported', lowest = 0) {
  const requested: BlockId[] = [];
  const hash = (height: number) => toFelt(BigInt(height + 1000));
  return {
    requested,
    blockHashAndNumber: async () => (head < 0 ? null : { height: head, hash: hash(head) }),
    async getBlockHeader(id: BlockId): Promise<BlockHeader> {
      requested.push(id);
      if (id === 'l1_accepted' && tag === 'unsupported')
        throw new RpcError('m', -32602, 'Invalid params', null);
      const height = id === 'l1_accepted' ? l1 : Number(id);
      if (height < lowest || height > head) throw new RpcError('m', 24, 'Block not found', null);
      return {
        height,
        hash: hash(height),
        parentHash: hash(height - 1),
        status: height <= l1 ? 'ACCEPTED_ON_L1' : 'ACCEPTED_ON_L2',
        timestamp: 0,
        transactionCount: null,
      };
    },
  };
}

test('bisectL1 finds the last accepted height from any known one, in few calls', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: -1, max: 100_000 }),
      fc.integer({ min: -1, max: 100_000 }),
      fc.integer({ min: 0, max: 100_000 }),
      async (head, most, below) => {
        const l1 = Math.min(head, most);
        const known = below <= l1 ? below : null;
        const node = chain(head, l1);
        expect((await bisectL1(node, known))?.height ?? -1).toBe(l1);
        expect(node.requested.length).toBeLessThan(45);
      },
    ),
  );
});

test('bisectL1 finds the last accepted height of a node that has pruned its first blocks', async () => {
  const upToHead = fc.nat({ max: 10_000 });
  await fc.assert(
    fc.asyncProperty(upToHead, upToHead, upToHead, upToHead, async (head, most, below, pruned) => {
      const [l1, lowest] = [Math.min(head, most), Math.min(head, pruned)];
      const found = await bisectL1(chain(head, l1, 'unsupported', lowest), below <= l1 ? below : null);
      expect(found?.height ?? null).toBe(l1 < lowest ? null : l1);
    }),
  );
});

test('bisectL1 makes two calls while nothing changed', async () => {
  const node = chain(1000, 700);
  await bisectL1(node, 700);
  expect(node.requested).toEqual([701, 700]);
});

test.each([
  ['supported', 700, 700],
  ['unsupported', 700, 700],
  ['supported', -1, -1],
] as const)(
  'createL1Finder finds the height with the tag %s, accepted up to %i',
  async (tag, l1, expected) => {
    const find = createL1Finder();
    expect((await find(chain(1000, l1, tag), null))?.height ?? -1).toBe(expected);
  },
);

test.each([
  ['a node that loses the tag', 'supported', 'unsupported', [-32602]],
  ['a node that refuses two calls', 'supported', 'supported', [-32601, -32601]],
  ['a node without the tag that refuses two calls', 'unsupported', 'unsupported', [-32601, -32601]],
] as const)('createL1Finder finds the height of %s', async (_what, before, after, refusals) => {
  const find = createL1Finder();
  expect((await find(chain(1000, 600, before), null))?.height).toBe(600);
  for (const code of refusals) {
    const refuse = () => Promise.reject(new RpcError('m', code, 'refused', null));
    const refusing = { blockHashAndNumber: refuse, getBlockHeader: refuse };
    await expect(find(refusing, 600)).rejects.toMatchObject({ rpcCode: code });
  }
  const node = chain(1000, 700, after);
  expect((await find(node, 600))?.height).toBe(700);
  expect(node.requested[0]).toBe('l1_accepted');
});

test('createL1Finder takes no rate limit for a missing tag', async () => {
  const find = createL1Finder();
  const node = chain(1000, 600, 'supported');
  const getBlockHeader = async (id: BlockId): Promise<BlockHeader> => {
    if (id === 'l1_accepted') throw new RpcError('m', 429, 'too many requests', null);
    return await node.getBlockHeader(id);
  };
  await expect(find({ ...node, getBlockHeader }, null)).rejects.toMatchObject({ rpcCode: 429 });
  expect((await find(node, null))?.height).toBe(600);
  expect(node.requested).toEqual(['l1_accepted', 'l1_accepted']);
});
