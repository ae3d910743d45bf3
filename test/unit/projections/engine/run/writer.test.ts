import { Registry } from 'prom-client';
import { expect, test } from 'vitest';

import { systemClock } from '../../../../../infra/clock.ts';
import { createLogger } from '../../../../../infra/log.ts';
import { accountLedger } from '../../../../../projections/account-ledger/projector.ts';
import { createProjectionMetrics } from '../../../../../projections/engine/metrics.ts';
import type { Batch, Target } from '../../../../../projections/engine/run/batch.ts';
import { createWriter } from '../../../../../projections/engine/run/writer.ts';
import { AppError } from '../../../../../schemas/errors.ts';
import { topics } from '../../../../../schemas/topics.ts';
import { createSimClock } from '../../../../simulate/clock.ts';

/** A batch that writes nothing: what matters here is when its hold is asked for. */
const emptyBatch = (): Batch => ({
  shares: [],
  add: () => {},
  skip: () => {},
  messages: () => 1,
  rows: () => 0,
  bytes: () => 0,
  sizes: () => [],
  moves: () => [],
});

test('takes locks in the order of the batches, also when one is retried', async () => {
  const asked: { answer: () => void; refuse: () => void }[] = [];
  const writer = createWriter({
    clickhouse: { insertEncoded: async () => {}, command: async () => {} },
    state: { move: async () => [] },
    hold: () =>
      new Promise((resolve, reject) => {
        asked.push({
          answer: () => resolve({ isLost: () => false, release: async () => {} }),
          refuse: () => reject(new AppError('STORE_UNAVAILABLE', 'away', { retryable: true })),
        });
      }),
    clock: { ...systemClock, sleep: () => systemClock.turn() },
    identity: { topic: topics.chainBlocks, topicId: 'id' },
    log: createLogger('test', 'silent'),
    metrics: createProjectionMetrics(new Registry()),
    signal: new AbortController().signal,
    onRefused: () => {},
    onRoom: () => {},
    onFatal: () => {},
  });
  const settle = async (): Promise<void> => {
    for (let turn = 0; turn < 5; turn += 1) await systemClock.turn();
  };

  writer.submit(emptyBatch());
  writer.submit(emptyBatch());
  await settle();
  expect(asked.length).toBe(1);
  asked[0]?.refuse();
  await settle();
  // The first batch again. Were it the second, a swap that waits for it would keep the first one waiting for ever.
  expect(asked.length).toBe(2);
  asked[1]?.answer();
  await writer.idle();
  // The second batch shared the lock of the first one, which was released after both.
  expect(asked.length).toBe(2);
  writer.submit(emptyBatch());
  await settle();
  expect(asked.length).toBe(3);
  asked[2]?.answer();
  await writer.idle();
});

test('derives once for batches that follow each other closely, and moves no checkpoint before', async () => {
  const clock = createSimClock(0, () => 0.5);
  const steps: string[] = [];
  let held = 0;
  const target: Target = {
    projection: {
      ...accountLedger,
      tables: {},
      derive: (heights) => [{ sql: heights.join(), params: {} }],
    },
    build: { projection: 'account-ledger', version: 1, build: 1, names: {} },
  };
  const batch = (height: number): Batch => ({
    ...emptyBatch(),
    shares: [{ target, tables: new Map(), touched: [height], moves: new Map() }],
    moves: () => {
      steps.push(`checkpoint ${height}`);
      return [];
    },
  });
  const writer = createWriter({
    clickhouse: {
      insertEncoded: async () => {},
      command: async (sql) => {
        steps.push(`derive ${sql}`);
        await clock.sleep(100);
      },
    },
    state: { move: async () => [] },
    hold: async () => {
      held += 1;
      return { isLost: () => false, release: async () => void (held -= 1) };
    },
    clock,
    identity: { topic: topics.chainBlocks, topicId: 'id' },
    log: createLogger('test', 'silent'),
    metrics: createProjectionMetrics(new Registry()),
    signal: new AbortController().signal,
    onRefused: () => {},
    onRoom: () => {},
    onFatal: () => {},
  });

  writer.submit(batch(1));
  await clock.run(100);
  for (const height of [2, 3, 4]) {
    await writer.room();
    writer.submit(batch(height));
    await clock.run(100);
  }
  expect(steps).toEqual(['derive 1', 'checkpoint 1']);
  expect(held).toBe(1);
  await clock.run(300);
  expect(steps).toEqual([
    'derive 1',
    'checkpoint 1',
    'derive 2,3,4',
    'checkpoint 2',
    'checkpoint 3',
    'checkpoint 4',
  ]);
  expect(held).toBe(0);

  // A stop does not wait for the pause.
  writer.submit(batch(5));
  const idle = writer.idle();
  await clock.run(100);
  await idle;
  expect(steps.slice(-2)).toEqual(['derive 5', 'checkpoint 5']);
});
