import { Registry } from 'prom-client';
import { expect, test } from 'vitest';

import { systemClock } from '../../../../../infra/clock.ts';
import { createLogger } from '../../../../../infra/log.ts';
import { createProjectionMetrics } from '../../../../../projections/engine/metrics.ts';
import type { Batch } from '../../../../../projections/engine/run/batch.ts';
import { createWriter } from '../../../../../projections/engine/run/writer.ts';
import { AppError } from '../../../../../schemas/errors.ts';
import { topics } from '../../../../../schemas/topics.ts';

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
  await settle();
  expect(asked.length).toBe(3);
  asked[2]?.answer();
  await writer.idle();
});
