import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import { expect, test } from 'vitest';

import { compareBlocks } from '../../../../pipeline/node/compare-blocks.ts';
import type { ComparedBlock } from '../../../../pipeline/node/compare-blocks.ts';
import { RpcError, rpcCodes } from '../../../../pipeline/node/errors.ts';
import type { Node } from '../../../../pipeline/node/types.ts';
import { COIN, makeBlock, transferEvent } from '../../../support/chain-messages.ts';

type ComparedNode = Pick<Node, 'getBlockWithReceipts' | 'getBlockTransactionCount'>;

const blockAt = (height: number) =>
  makeBlock({ height, transactions: [{ events: [transferEvent(COIN, COIN, COIN, 5n)] }] });
const inLog = (height: number): ComparedBlock => {
  const { hash } = blockAt(height);
  return { height, hash, transactions: 1, events: 1 };
};
const honest: ComparedNode = {
  getBlockWithReceipts: async (id) => ({
    body: blockAt(Number(id)),
    status: 'ACCEPTED_ON_L1',
    eventCommitment: null,
    bytes: 500,
  }),
  getBlockTransactionCount: async () => 1,
};
async function* heights(from: number, to: number, at: (height: number) => void = () => {}) {
  for (let height = from; height < to; height += 1) {
    at(height);
    yield inLog(height);
  }
}

test('compareBlocks names each difference, and blocks missing on the node', async () => {
  const node: ComparedNode = {
    async getBlockWithReceipts(id) {
      const read = await honest.getBlockWithReceipts(id);
      const { body } = read;
      if (id === 30) throw new RpcError('block', rpcCodes.blockNotFound, 'Block not found', null);
      if (id === 7) return { ...read, body: { ...body, hash: COIN } };
      return id === 8 ? { ...read, body: { ...body, transactions: [] } } : read;
    },
    getBlockTransactionCount: async (id) => (id === 9 ? 2 : 1),
  };
  expect(await compareBlocks(node, heights(0, 40))).toEqual([
    { height: 7, what: `block 7: the log has ${blockAt(7).hash}, the node ${COIN}` },
    { height: 8, what: 'block 8: the log has 1 transactions, the node 0 and counts 1' },
    { height: 8, what: 'block 8: the log has 1 events, the node 0' },
    { height: 9, what: 'block 9: the log has 1 transactions, the node 1 and counts 2' },
    { height: 30, what: 'block 30: missing on the node' },
  ]);
});

test('compareBlocks stops after a failure, and aborts the requests in flight', async () => {
  const requested: number[] = [];
  let abortedCalls = 0;
  const node: ComparedNode = {
    ...honest,
    getBlockWithReceipts(id, { signal } = {}) {
      requested.push(Number(id));
      return new Promise((_, reject) => {
        if (id === 4) setTimeout(() => reject(new Error('connection failed')), 20);
        signal?.addEventListener('abort', () => {
          abortedCalls += 1;
          reject(new Error('aborted'));
        });
      });
    },
  };
  await expect(compareBlocks(node, heights(0, 100))).rejects.toThrow('connection failed');
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(requested).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  expect(abortedCalls).toBe(8);
});

test('compareBlocks rejects with the reason of its signal', async () => {
  const stop = new AbortController();
  const node: ComparedNode = {
    ...honest,
    async getBlockWithReceipts(id, { signal } = {}) {
      if (id === 20) stop.abort(new Error('stopped'));
      signal?.throwIfAborted();
      return await honest.getBlockWithReceipts(id);
    },
  };
  await expect(compareBlocks(node, heights(0, 100), { signal: stop.signal })).rejects.toThrow('stopped');
});

test('compareBlocks uses constant memory for any number of blocks', { timeout: 120_000 }, async () => {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  const used: number[] = [];
  const measure = (height: number): void => {
    if (height % 30_000 !== 10_000 || typeof collect !== 'function') return;
    collect();
    used.push(process.memoryUsage().heapUsed);
  };
  const block = await honest.getBlockWithReceipts(0);
  const node: ComparedNode = { ...honest, getBlockWithReceipts: async () => block };
  const one = inLog(0);
  async function* many() {
    for (let height = 0; height < 50_000; height += 1) {
      measure(height);
      yield one;
    }
  }
  expect(await compareBlocks(node, many())).toEqual([]);
  const [early = 0, late = 0] = used;
  // 30,000 blocks in between: 100 bytes each would be 3 MB.
  expect(late - early).toBeLessThan(2_000_000);
});
