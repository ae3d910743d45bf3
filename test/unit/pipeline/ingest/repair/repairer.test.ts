import { once } from 'node:events';

import { Registry } from 'prom-client';
import { expect, test } from 'vitest';

import { systemClock } from '../../../../../infra/clock.ts';
import type { Clock } from '../../../../../infra/clock.ts';
import { acquireLease } from '../../../../../pipeline/ingest/lease.ts';
import { createIngestMetrics } from '../../../../../pipeline/ingest/metrics.ts';
import type { ReadPublishedBlock, IngestDeps } from '../../../../../pipeline/ingest/ports.ts';
import { createRepairer } from '../../../../../pipeline/ingest/repair/repairer.ts';
import { AppError } from '../../../../../schemas/errors.ts';
import { toFelt } from '../../../../../schemas/felt.ts';
import type { BlockHeader } from '../../../../../pipeline/node/types.ts';
import { makeBlock } from '../../../../support/chain-messages.ts';
import { createSimStore } from '../../../../simulate/ingest-store.ts';
import { log } from '../../../../simulate/stage.ts';

const CURSOR = 1000;

/** A repairer of `live` with its cursor at 1000, all blocks below being final, and the messages it publishes. */
async function createTestRepairer({
  readPublishedBlock,
  header,
  failure = () => null,
}: {
  readPublishedBlock: (height: number, signal: AbortSignal) => ReturnType<ReadPublishedBlock>;
  header: () => Partial<BlockHeader>;
  /** Why only the first of the messages that are published together is stored; null: all are. */
  failure?: () => Error | null;
}) {
  let now = 1_700_000_000_000;
  const store = createSimStore(() => now);
  const sent: unknown[] = [];
  const clock: Clock = { ...systemClock, now: () => now, sleep: () => new Promise(() => {}) };
  const body = (height: number) => makeBlock({ height, transactions: [] });
  const never = () => Promise.reject(new Error('unexpected call'));
  const deps: IngestDeps = {
    store,
    subscribeToHeads: null,
    clock,
    log,
    metrics: createIngestMetrics(new Registry()),
    createBlockReader: (signal) => (height) => readPublishedBlock(height, signal),
    blockLog: {
      async *messagesSince() {},
      ends: never,
      blocksAt: never,
    },
    checks: { published: async () => {}, reverted: async () => {} },
    standards: { resolve: async () => new Map() },
    publisher: {
      async publish(_topic, messages) {
        const failing = failure();
        const stored = failing === null ? messages : messages.slice(0, 1);
        sent.push(...stored.map(({ value }) => value));
        if (failing !== null) throw failing;
        return messages.map((_, offset) => ({ partition: 0, offset }));
      },
    },
    node: {
      chainId: never,
      specVersion: never,
      blockHashAndNumber: never,
      l1Accepted: never,
      getBlockHeader: async (id) => {
        const { height, hash, parent_hash: parentHash, timestamp } = body(Number(id));
        const status = 'ACCEPTED_ON_L1';
        return { height, hash, parentHash, status, timestamp, transactionCount: 0, ...header() };
      },
      getBlockWithReceipts: async (id) => ({
        body: body(Number(id)),
        status: 'ACCEPTED_ON_L1',
        eventCommitment: null,
        bytes: 500,
      }),
    },
    settings: {
      indexFrom: 0,
      backfillChunkBlocks: 7,
      backfillConcurrency: 2,
      prefetchBytes: 5000,
      prefetchConcurrency: 4,
      headPollMs: 200,
      l1PollMs: 500,
      stallMs: 60_000,
      headStallMs: 0,
      leaseMs: 1e9,
      holder: 'one',
    },
  };
  await store.createChunks([{ name: 'live', start: 0, end: null, finalHash: null }]);
  const lease = await acquireLease(deps, 'live');
  if (lease === null) throw new Error('lease not granted');
  await store.moveCursor(lease, { from: 0, to: CURSOR, final: null, firstParent: toFelt(0n) });
  const repairer = createRepairer(deps, lease);
  return {
    store,
    lease,
    sent,
    body,
    rounds: async (count: number): Promise<void> => {
      for (let round = 0; round < count; round += 1) {
        now += 2500;
        await repairer.run();
      }
    },
  };
}

const inLog: ReadPublishedBlock = async (height) => ({
  block: makeBlock({ height, transactions: [] }),
  contracts: {},
});

test.each([
  ['not accepted on L1', { status: 'ACCEPTED_ON_L2' as const }],
  ['another block', { hash: toFelt(0xdeadn) }],
])('does not accept a block of the log again while the node shows it as %s', async (_, shown) => {
  let header: Partial<BlockHeader> = shown;
  const { store, sent, rounds } = await createTestRepairer({
    readPublishedBlock: inLog,
    header: () => header,
  });
  store.requestRepair(5, true);
  await rounds(3);
  expect(sent).toEqual([]);
  expect(store.pendingCount()).toBe(1);

  header = {};
  await rounds(10);
  expect(sent).toMatchObject([{ type: 'block.reverted' }, { type: 'block.accepted' }]);
  expect(store.pendingCount()).toBe(0);
});

test('stops waiting for an unavailable log when its lease ends', async () => {
  const readPublishedBlock = async (_: number, signal: AbortSignal): Promise<null> => {
    await once(signal, 'abort');
    throw signal.reason;
  };
  const { store, lease, rounds } = await createTestRepairer({ readPublishedBlock, header: () => ({}) });
  store.requestRepair(5, true);
  setImmediate(() => lease.abort());
  await expect(rounds(1)).rejects.toThrow('aborted');
});

test('publishes a block that is missing from the log', async () => {
  const readPublishedBlock: ReadPublishedBlock = async (height) =>
    height === 5 ? null : await inLog(height);
  const { store, sent, rounds } = await createTestRepairer({ readPublishedBlock, header: () => ({}) });
  store.requestRepair(5, true);
  await rounds(1);
  expect(sent).toMatchObject([{ type: 'block.accepted', block: { height: 5 } }]);
  expect(store.pendingCount()).toBe(0);
});

test('publishes the block that replaces a reverted orphan as by a reorg, again after a crash', async () => {
  let failure: Error | null = new AppError('STORE_UNAVAILABLE', 'cut', { retryable: true });
  const isSent = (): boolean => sent.length > 0;
  const readPublishedBlock: ReadPublishedBlock = async (height) =>
    height === 5 && !isSent() ? null : await inLog(height);
  const { store, sent, rounds } = await createTestRepairer({
    readPublishedBlock,
    header: () => ({}),
    failure: () => failure,
  });
  store.requestRepair(5, true, true);
  // Requested for another reason meanwhile.
  store.requestRepair(5);
  await rounds(1);
  const replacement = { type: 'block.accepted', cause: 'reorg', block: { height: 5 } };
  expect(sent).toMatchObject([replacement]);
  failure = null;
  await rounds(100);
  expect(sent.at(1)).toMatchObject({ type: 'block.reverted', cause: 'repair' });
  expect(sent.at(-1)).toMatchObject(replacement);
  expect(store.pendingCount()).toBe(0);
});

test('publishes a block again whose repair was cut after the revert', async () => {
  let failure: Error | null = new AppError('STORE_UNAVAILABLE', 'cut', { retryable: true });
  const isReverted = (): boolean => sent.length === 1;
  const readPublishedBlock: ReadPublishedBlock = async (height) =>
    height === 5 && isReverted() ? null : await inLog(height);
  const { store, sent, rounds } = await createTestRepairer({
    readPublishedBlock,
    header: () => ({}),
    failure: () => failure,
  });
  store.requestRepair(5);
  await rounds(1);
  expect(sent).toMatchObject([{ type: 'block.reverted' }]);
  failure = null;
  await rounds(100);
  expect(sent.at(-1)).toMatchObject({ type: 'block.accepted', block: { height: 5 } });
  expect(store.pendingCount()).toBe(0);
});

test('runs repairs behind failing ones, and a failing one at once when it is requested again', async () => {
  let isBehind = true;
  const header = (): Partial<BlockHeader> => (isBehind ? { status: 'ACCEPTED_ON_L2' } : {});
  const readPublishedBlock: ReadPublishedBlock = async (height) =>
    height === 500 ? null : await inLog(height);
  const { store, sent, rounds } = await createTestRepairer({ readPublishedBlock, header });
  for (let height = 0; height < 120; height += 1) store.requestRepair(height);
  store.requestRepair(500, true);
  await rounds(6);
  expect(sent).toMatchObject([{ type: 'block.accepted', block: { height: 500 } }]);

  await rounds(100);
  isBehind = false;
  store.requestRepair(7);
  await rounds(1);
  expect(sent).toContainEqual(
    expect.objectContaining({ type: 'block.accepted', block: makeBlock({ height: 7, transactions: [] }) }),
  );
  await rounds(60);
  expect(store.pendingCount()).toBe(0);
});
