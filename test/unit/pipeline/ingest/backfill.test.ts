import { expect, test, vi } from 'vitest';

import { RpcError, rpcCodes } from '../../../../pipeline/node/errors.ts';
import { toFelt } from '../../../../schemas/felt.ts';
import { topics } from '../../../../schemas/topics.ts';
import { createWorld } from '../../../simulate/world.ts';

/** The last block of the lowest chunk. */
const END = 6;

test.each([
  ['has begun', true],
  ['has not begun', false],
])(
  'a last block that is not the parent of the chunk above, which %s, is never published',
  async (_, hasBegun) => {
    const { chain, clock, store, broker, startIngester } = createWorld({ seed: 4, blocks: 30 });
    chain.acceptOnL1(20);
    const bodyAt = (height: number) => chain.at(height)!.body;
    const fetched = { status: 'ACCEPTED_ON_L1', eventCommitment: null, bytes: 500 } as const;
    const settings = { backfillChunkBlocks: END + 1, backfillConcurrency: hasBegun ? 2 : 1 };
    if (hasBegun) {
      const { process } = startIngester({
        settings,
        node: {
          getBlockWithReceipts: async (id) =>
            Number(id) <= END ? await new Promise(() => {}) : { body: bodyAt(Number(id)), ...fetched },
        },
      });
      await clock.run(10_000);
      process.kill();
    }

    let isForked = true;
    startIngester({
      settings,
      node: {
        async getBlockWithReceipts(id) {
          const body = bodyAt(Number(id));
          const other = { ...body, hash: toFelt(0x07e4n) };
          return { body: isForked && id === END ? other : body, ...fetched };
        },
        // Only the stored parent hash contradicts the block.
        ...(hasBegun && {
          getBlockHeader: async () => {
            throw new RpcError('block', rpcCodes.blockNotFound, 'Block not found', null);
          },
        }),
      },
    });
    await clock.run(60_000);
    const above = (await store.chunks()).find(({ start }) => start === END + 1);
    expect(above?.firstParent).toBe(hasBegun ? bodyAt(END).hash : null);
    const lastBlocks = () =>
      broker.messages(topics.chainBlocks).flatMap(({ block }) => (block.height === END ? [block.hash] : []));
    expect(lastBlocks()).toEqual([]);
    expect(store.alarms.get('ingest.failing:backfill-000000000-000000006')).toMatch(
      /^NODE_INCONSISTENT: .* block 6 /,
    );
    isForked = false;
    await clock.run(60_000);
    expect(lastBlocks()).toEqual([bodyAt(END).hash]);
  },
);

test('final blocks that one of the nodes at an address lacks are indexed without an alarm', async () => {
  const { chain, clock, store, startIngester } = createWorld({ seed: 4, blocks: 30 });
  chain.acceptOnL1(20);
  const raised = vi.spyOn(store, 'raiseAlarm');
  const requested = new Set<unknown>();
  startIngester({
    settings: { backfillConcurrency: 1 },
    node: {
      async getBlockWithReceipts(id) {
        if (!requested.has(id)) {
          requested.add(id);
          throw new RpcError('block', rpcCodes.blockNotFound, 'Block not found', null);
        }
        return {
          body: chain.at(Number(id))!.body,
          status: 'ACCEPTED_ON_L1',
          eventCommitment: null,
          bytes: 500,
        };
      },
    },
  });
  await clock.run(60_000);
  expect((await store.chunks()).filter(({ end, finished }) => end !== null && !finished)).toEqual([]);
  expect(raised).not.toHaveBeenCalled();
});
