import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, test, vi } from 'vitest';

import type { CheckpointedConsumerOptions } from '../../../../infra/kafka/checkpointed-consumer.ts';
import type { Kafka, LogBatch, Publisher } from '../../../../infra/kafka/client.ts';
import type { Pool, PoolClient } from '../../../../infra/postgres/client.ts';
import { createBatchHandler, createBlockFeed } from '../../../../pipeline/observe/block-feed.ts';
import type { BlockHandler } from '../../../../pipeline/observe/block-feed.ts';
import type { BlockAccepted, BlockReverted } from '../../../../schemas/messages/chain-blocks.ts';
import { accepted, makeBlock, reverted } from '../../../support/chain-messages.ts';

/** What the feed consumes with. */
const consumed = vi.hoisted(() => vi.fn<(options: CheckpointedConsumerOptions) => void>());
vi.mock('../../../../infra/kafka/checkpointed-consumer.ts', () => ({
  async startCheckpointedConsumer(options: CheckpointedConsumerOptions) {
    consumed(options);
    return { stop: async () => {} };
  },
}));

const block = (height: number) => makeBlock({ height, transactions: [] });

function batchOf(values: readonly (BlockAccepted | BlockReverted | string)[]): LogBatch {
  const topic = 'chain.blocks';
  const messages = values.map((value, offset) => ({
    topic,
    partition: 0,
    offset,
    key: null,
    timestamp: 0,
    value: Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)),
  }));
  return { topic, partition: 0, messages, highWatermark: values.length };
}

describe('createBatchHandler', () => {
  const stopping = new AbortController();
  let isBackfilling = false;
  const onNewest = vi.fn<() => void>();
  const handlerOf = (...handlers: BlockHandler[]) =>
    createBatchHandler(
      { log: pino({ level: 'silent' }), signal: stopping.signal, retryWhileUnavailable: (work) => work() },
      { handlers, onNewest, isBackfilling: async () => isBackfilling },
    );
  /** Sets `ended` when the batch is handled. */
  const run = (handle: (batch: LogBatch) => Promise<void>, batch: LogBatch) => {
    const state = { ended: false };
    void handle(batch).then(() => (state.ended = true));
    return state;
  };
  beforeEach(() => {
    vi.useFakeTimers({ now: 0 });
    onNewest.mockClear();
  });
  afterEach(() => void vi.useRealTimers());

  it('passes accepted blocks to every handler, once for the whole batch', async () => {
    const seen: (readonly [string, readonly number[]])[] = [];
    const record =
      (name: string): BlockHandler =>
      async (blocks) =>
        void seen.push([name, blocks.map(({ offset }) => offset)]);
    const handled = handlerOf(
      record('a'),
      record('b'),
    )(batchOf([accepted(block(1), 1), 'nonsense', reverted(block(1), 2), accepted(block(1), 3)]));
    await vi.advanceTimersByTimeAsync(200);
    // A new block is projected and read first.
    expect(seen).toEqual([]);
    await vi.advanceTimersByTimeAsync(100);
    await handled;
    expect(seen).toEqual([
      ['a', [0, 3]],
      ['b', [0, 3]],
    ]);
  });

  it('ends after the slowest handler, so that the checkpoint moves after every task is stored', async () => {
    const slow = Promise.withResolvers<void>();
    const state = run(
      handlerOf(
        async () => {},
        () => slow.promise,
      ),
      batchOf([accepted(block(1), 1)]),
    );
    await vi.advanceTimersByTimeAsync(60_000);
    expect(state.ended).toBe(false);
    slow.resolve();
    await vi.advanceTimersByTimeAsync(0);
    expect(state.ended).toBe(true);
  });

  it('tells of a batch at the end of the log at once, and of no other', async () => {
    const handle = handlerOf(async () => {});
    const batch = batchOf([accepted(block(1), 1)]);
    run(handle, { ...batch, highWatermark: 2 });
    await vi.advanceTimersByTimeAsync(1000);
    expect(onNewest).not.toHaveBeenCalled();
    run(handle, batch);
    expect(onNewest).toHaveBeenCalledOnce();
    await vi.advanceTimersByTimeAsync(1000);
  });

  it('pauses after a batch during a backfill only', async () => {
    const handle = handlerOf(async () => {});
    isBackfilling = true;
    const paused = run(handle, batchOf([accepted(block(1), 1)]));
    await vi.advanceTimersByTimeAsync(600);
    expect(paused.ended).toBe(false);
    await vi.advanceTimersByTimeAsync(5000);
    expect(paused.ended).toBe(true);

    isBackfilling = false;
    const prompt = run(handle, batchOf([accepted(block(1), 1)]));
    await vi.advanceTimersByTimeAsync(250);
    expect(prompt.ended).toBe(true);
  });
});

test('sinceNewestMs counts from the last batch that reached the end of the log', async () => {
  vi.useFakeTimers({ now: 0 });
  try {
    const publisher = { close: async () => {} } as Publisher;
    const feed = createBlockFeed({
      pool: {} as Pool,
      kafka: { publisher: () => publisher } as Kafka,
      log: pino({ level: 'silent' }),
      isBackfilling: async () => false,
    });
    const run = await feed.start();
    const receive = async (batch: LogBatch): Promise<void> => {
      void consumed.mock.lastCall?.[0].handle({
        ...batch,
        nextOffset: 1,
        commit: (_, work) => work({} as PoolClient),
      });
      await vi.advanceTimersByTimeAsync(1000);
    };
    const batch = batchOf([accepted(block(1), 1)]);
    await receive({ ...batch, highWatermark: 2 });
    expect(feed.sinceNewestMs()).toBe(Infinity);
    await receive(batch);
    expect(feed.sinceNewestMs()).toBe(1000);
    await receive({ ...batch, highWatermark: 2 });
    expect(feed.sinceNewestMs()).toBe(2000);
    await receive(batch);
    expect(feed.sinceNewestMs()).toBe(1000);
    await run.stop();
  } finally {
    vi.useRealTimers();
  }
});
