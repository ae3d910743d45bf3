import { text } from 'node:stream/consumers';

import { Registry } from 'prom-client';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';

import { serveOnLoopback } from '../../../../infra/embedded/loopback.ts';
import { assertSameChain } from '../../../../pipeline/node/chain-id.ts';
import { createNodeMetrics } from '../../../../pipeline/node/metrics.ts';
import { createNode } from '../../../../pipeline/node/node.ts';
import type { Node } from '../../../../pipeline/node/types.ts';
import { toFelt } from '../../../../schemas/felt.ts';

const [MAIN, SEPOLIA] = [toFelt(0x534e5f4d41494en), toFelt(0x534e5f5345504f4c4941n)];
const CALL = { contract: toFelt(1n), selector: toFelt(2n), calldata: [] };
const callSchema = z.object({ id: z.unknown(), method: z.string() });

let server: Awaited<ReturnType<typeof serveOnLoopback>>;
let served = MAIN;
let isUnavailable = false;
let methods: string[] = [];

beforeAll(async () => {
  server = await serveOnLoopback((request, response) => {
    void text(request).then((body) => {
      if (isUnavailable) return response.writeHead(500).end();
      const requests = [JSON.parse(body)].flat().map((one) => callSchema.parse(one));
      methods.push(...requests.map(({ method }) => method));
      const answers = requests.map(({ id, method }) => ({
        jsonrpc: '2.0',
        id,
        result: method === 'starknet_chainId' ? `0x${BigInt(served).toString(16)}` : ['0x7'],
      }));
      return response.end(JSON.stringify(body.startsWith('[') ? answers : answers[0]));
    });
  });
});
afterAll(() => server.close());
beforeEach(() => {
  served = MAIN;
  isUnavailable = false;
  methods = [];
});

function createMainnetNode(): Node {
  return createNode({
    url: server.url,
    timeoutMs: 5000,
    maxConcurrent: 4,
    attempts: 1,
    metrics: createNodeMetrics(new Registry()),
    checkChain: async (chain) => assertSameChain(chain, MAIN),
  });
}

test('a node with a chain check requests the chain id once, before any other call', async () => {
  const node = createMainnetNode();
  const answers = await Promise.all([
    node.call(CALL, 'latest'),
    node.callMany([CALL, CALL], 'latest'),
    node.call(CALL, 'latest'),
  ]);
  expect(answers[0]).toEqual([toFelt(7n)]);
  await node.call(CALL, 'latest');
  expect(methods.filter((method) => method === 'starknet_chainId')).toEqual(['starknet_chainId']);
  expect(methods[0]).toBe('starknet_chainId');
  expect(methods).toHaveLength(6);
  await node.close();
});

test('a node with a chain check makes no other call while the node serves another chain', async () => {
  served = SEPOLIA;
  const node = createMainnetNode();
  const refusal = {
    code: 'CHAIN_MISMATCH',
    message: 'Starknet node serves chain SN_SEPOLIA, this installation indexes SN_MAIN',
  };
  await expect(node.call(CALL, 'latest')).rejects.toMatchObject(refusal);
  await expect(node.callMany([CALL], 'latest')).rejects.toMatchObject(refusal);
  expect(new Set(methods)).toEqual(new Set(['starknet_chainId']));
  served = MAIN;
  expect(await node.call(CALL, 'latest')).toEqual([toFelt(7n)]);
  await node.close();
});

test('a node with a chain check repeats the check after a failure', async () => {
  isUnavailable = true;
  const node = createMainnetNode();
  await expect(node.call(CALL, 'latest')).rejects.toThrow();
  isUnavailable = false;
  expect(await node.call(CALL, 'latest')).toEqual([toFelt(7n)]);
  await node.close();
});
