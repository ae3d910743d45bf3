import { Registry } from 'prom-client';
import { expect, test } from 'vitest';

import { createLogger } from '../../../../../infra/log.ts';
import { accountLedger } from '../../../../../projections/account-ledger/projector.ts';
import { createProjectionMetrics } from '../../../../../projections/engine/metrics.ts';
import type { Batch, Target } from '../../../../../projections/engine/run/batch.ts';
import { createWriter } from '../../../../../projections/engine/run/writer.ts';
import { topics } from '../../../../../schemas/topics.ts';
import { createSimClock } from '../../../../simulate/clock.ts';

/** A batch without rows. */
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
