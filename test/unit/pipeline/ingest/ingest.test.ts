import { expect, test, vi } from 'vitest';

import { RpcError } from '../../../../pipeline/node/errors.ts';
import { AppError } from '../../../../schemas/errors.ts';
import { toFelt } from '../../../../schemas/felt.ts';
import { topics } from '../../../../schemas/topics.ts';
import { log } from '../../../simulate/stage.ts';
import { createWorld } from '../../../simulate/world.ts';

const LEASE_MS = 5000;
const CHAIN_ID = toFelt(0x534e5f53494dn);

test('waits for a height accepted on L1 on a long chain without a first height', async () => {
  const world = createWorld({ seed: 2, base: 20_000, blocks: 30 });
  world.startIngester({ settings: { indexFrom: null } });
  await world.clock.run(65_000);
  expect(await world.store.chunks()).toEqual([]);
  expect(world.store.alarms.get('ingest.failing:start')).toContain('INDEX_FROM must be set');
  expect([...world.store.alarms.keys()]).toEqual(['ingest.failing:start', 'ingest.stalled:start']);
  world.chain.acceptOnL1(20_010);
  await world.clock.run(30_000);
  expect((await world.store.chunks()).map(({ start }) => start).toSorted((a, b) => a - b)).toEqual([
    20_010, 20_011,
  ]);
  expect([...world.store.alarms.keys()]).toEqual([]);
});

test.each([
  ['HTTP 403', new AppError('NODE_UNREACHABLE', 'HTTP 403')],
  ['a JSON-RPC error', new RpcError('starknet_chainId', -32601, 'method not found', null)],
])('starts with an alarm while the node refuses it with %s, and indexes later', async (_, refusal) => {
  const world = createWorld({ seed: 2, blocks: 30 });
  const answersAt = world.clock.now() + 50_000;
  const { attempted } = world.startIngester({
    node: {
      chainId: async () => {
        if (world.clock.now() < answersAt) throw refusal;
        return CHAIN_ID;
      },
    },
  });
  await world.clock.run(1000);
  const detail = `${refusal.code}: ${refusal.message}`;
  await attempted;
  expect([...world.store.alarms]).toEqual([['ingest.failing:start', detail]]);
  await world.clock.run(45_000);
  expect(await world.store.chunks()).toEqual([]);
  expect([...world.store.alarms]).toEqual([['ingest.failing:start', detail]]);
  await world.clock.run(30_000);
  expect(await world.store.chunks()).toMatchObject([{ name: 'live', opened: true, cursor: 30 }]);
  expect([...world.store.alarms]).toEqual([]);
});

test.each([
  ['0.6.0', true],
  ['v0.7.1', true],
  ['0.8.1', false],
  ['0.10.0-rc.2', false],
  ['1.0.0', false],
])('indexes the chain of a node of JSON-RPC %s, with a warning: %s', async (specVersion, isWarned) => {
  const warn = vi.spyOn(log, 'warn');
  try {
    const world = createWorld({ seed: 2, blocks: 30 });
    world.startIngester({ node: { specVersion: async () => specVersion } });
    await world.clock.run(10_000);
    expect(await world.store.chunks()).toMatchObject([{ name: 'live', cursor: 30 }]);
    expect(warn.mock.calls).toEqual(isWarned ? [[{ specVersion }, expect.stringMatching('JSON-RPC')]] : []);
  } finally {
    warn.mockRestore();
  }
});

test('leaves no alarm when it is stopped while the node refuses it', async () => {
  const world = createWorld({ seed: 2, blocks: 30 });
  const chainId = async (): Promise<never> => {
    throw new AppError('NODE_UNREACHABLE', 'HTTP 403');
  };
  const ingester = world.startIngester({ node: { chainId } });
  await world.clock.run(1000);
  expect([...world.store.alarms.keys()]).toEqual(['ingest.failing:start']);
  const stopped = ingester.stop();
  await world.clock.run(1000);
  await stopped;
  expect([...world.store.alarms]).toEqual([]);
});

test('ends with an alarm at another chain', async () => {
  const world = createWorld({ seed: 2, blocks: 30 });
  await world.store.storeChainId(toFelt(1n));
  const { attempted } = world.startIngester();
  await world.clock.run(10_000);
  await expect(attempted).rejects.toMatchObject({ code: 'CHAIN_MISMATCH' });
  expect([...world.store.alarms]).toEqual([
    ['ingest.failing:start', expect.stringMatching(/^CHAIN_MISMATCH: /)],
  ]);
  expect(await world.store.chunks()).toEqual([]);
});

test('begins a short chain without blocks accepted on L1 at block 0', async () => {
  const world = createWorld({ seed: 2, blocks: 30 });
  world.startIngester({ settings: { indexFrom: null } });
  await world.clock.run(10_000);
  expect(await world.store.chunks()).toMatchObject([{ name: 'live', start: 0, cursor: 30 }]);
});

test.each([
  ['below', 10],
  ['at', 29],
  ['above', 35],
])(
  'halts at the same block hashes with other times, as of a restarted devnet, %s the index',
  async (_, head) => {
    const world = createWorld({ seed: 3, blocks: 30 });
    const former = world.startIngester();
    await world.clock.run(30_000);
    void former.stop();
    await world.clock.run(10_000);
    if (head > 29) world.chain.advance(head - 29);
    const published = world.broker.messages(topics.chainBlocks).length;
    const bodyAt = (height: number) => world.chain.at(height)!.body;
    world.startIngester({
      node: {
        blockHashAndNumber: async () => ({ height: head, hash: bodyAt(head).hash }),
        getBlockHeader: async (id) => {
          const body = bodyAt(typeof id === 'number' ? id : head);
          return {
            height: body.height,
            hash: body.hash,
            parentHash: body.parent_hash,
            status: 'ACCEPTED_ON_L2',
            timestamp: body.timestamp + 3600,
            transactionCount: body.transaction_count,
          };
        },
      },
    });
    await world.clock.run(60_000);
    expect([...world.store.alarms]).toEqual([
      ['ingest.failing:live', expect.stringContaining('CHAIN_MISMATCH: block')],
    ]);
    expect(world.broker.messages(topics.chainBlocks)).toHaveLength(published);
  },
);

/** Three backfill chunks below `live`, and a node that never answers with a block. Ingesters write one chunk each. */
function createStalledWorld() {
  const world = createWorld({ seed: 1, blocks: 30 });
  world.chain.acceptOnL1(20);
  return {
    ...world,
    start: () =>
      world.startIngester({
        node: { getBlockWithReceipts: () => new Promise(() => {}) },
        settings: { backfillChunkBlocks: 7, backfillConcurrency: 1, leaseMs: LEASE_MS },
      }).process,
    /** Of each backfill chunk, lowest first. */
    holders: async () => {
      const backfill = (await world.store.chunks()).filter(({ end }) => end !== null);
      return backfill.map(({ lease }) => lease?.holder ?? null);
    },
  };
}

test('a second ingester writes another chunk of the backfill', async () => {
  const { clock, start, holders } = createStalledWorld();
  const processes = [start(), start()];
  await clock.run(3 * LEASE_MS);
  const [lowest, next, highest] = await holders();
  expect(new Set([lowest, next])).toEqual(new Set(processes.map(({ name }) => name)));
  expect(highest).toBeNull();
});

test('a restarted ingester takes the chunk of the crashed one once its lease expires, and none above it before', async () => {
  const { clock, start, holders } = createStalledWorld();
  const processes = [start(), start()];
  await clock.run(3 * LEASE_MS);
  const [lowest, next] = await holders();
  processes.find(({ name }) => name === lowest)?.kill();
  const restarted = start();
  for (let ms = 0; ms <= 2 * LEASE_MS; ms += 100) {
    await clock.run(100);
    expect([
      [lowest, next, null],
      [null, next, null],
      [restarted.name, next, null],
    ]).toContainEqual(await holders());
  }
  expect(await holders()).toEqual([restarted.name, next, null]);
});

test('repairs a finished chunk while any number of repairs below the first height is overdue', async () => {
  const world = createWorld({ seed: 1, base: 2000, blocks: 30 });
  world.chain.acceptOnL1(2020);
  for (let height = 0; height < 1000; height += 1) world.store.requestRepair(height);
  world.startIngester();
  world.startProjector({});
  await world.clock.run(20_000);
  world.store.requestRepair(2003);
  await world.clock.run(20_000);
  expect(world.store.pendingCount()).toBe(1000);
});
