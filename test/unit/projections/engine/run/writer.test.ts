import { Registry } from 'prom-client';
import { expect, test } from 'vitest';

import { unavailable } from '../../../../../infra/clickhouse/attempt.ts';
import { createRowEncoder } from '../../../../../infra/clickhouse/row-binary.ts';
import type { ColumnSpec, RowEncoder, SpareBuffers } from '../../../../../infra/clickhouse/row-binary.ts';
import { createLogger } from '../../../../../infra/log.ts';
import { accountLedger } from '../../../../../projections/account-ledger/projector.ts';
import { createProjectionMetrics } from '../../../../../projections/engine/metrics.ts';
import type { Batch, Share, Target } from '../../../../../projections/engine/run/batch.ts';
import { createInsert } from '../../../../../projections/engine/run/finisher.ts';
import { createWriter } from '../../../../../projections/engine/run/writer.ts';
import { topics } from '../../../../../schemas/topics.ts';
import { createSimClock } from '../../../../simulate/clock.ts';

/** What these tests of a writer do not look at. */
const quiet = () => ({
  identity: { topic: topics.chainBlocks, topicId: 'id' },
  log: createLogger('test', 'silent'),
  metrics: createProjectionMetrics(new Registry()),
  signal: new AbortController().signal,
  onRefused: () => {},
  onRoom: () => {},
  onFatal: () => {},
});

/** A batch without rows, of so many messages. */
const emptyBatch = (messages: number): Batch => ({
  shares: [],
  add: () => {},
  skip: () => {},
  messages: () => messages,
  rows: () => 0,
  bytes: () => 0,
  isOpen: () => false,
  moves: () => [],
});

/** A writer of batches that derive for 100 ms; `steps` gets what it does, and `held` returns the locks that it holds. */
function createDeriving() {
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
  const batch = (height: number, messages = 100): Batch => ({
    ...emptyBatch(messages),
    shares: [{ target, tables: new Map(), removals: new Map(), touched: [height], moves: new Map() }],
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
    announceIndexed: null,
    lockServed: async () => {
      held += 1;
      return { isLost: () => false, release: async () => void (held -= 1) };
    },
    clock,
    ...quiet(),
  });

  return { clock, steps, writer, batch, held: () => held };
}

test('derives once for batches that follow each other closely, and moves no checkpoint before', async () => {
  const { clock, steps, writer, batch, held } = createDeriving();
  writer.submit(batch(1));
  await clock.run(100);
  for (const height of [2, 3, 4]) {
    await writer.room();
    writer.submit(batch(height));
    await clock.run(100);
  }
  expect(steps).toEqual(['derive 1', 'checkpoint 1']);
  expect(held()).toBe(1);
  await clock.run(300);
  expect(steps).toEqual([
    'derive 1',
    'checkpoint 1',
    'derive 2,3,4',
    'checkpoint 2',
    'checkpoint 3',
    'checkpoint 4',
  ]);
  expect(held()).toBe(0);

  // A stop does not wait for the pause.
  writer.submit(batch(5));
  const idle = writer.idle();
  await clock.run(100);
  await idle;
  expect(steps.slice(-2)).toEqual(['derive 5', 'checkpoint 5']);
});

test('derives at once while it is not paced, also what is submitted by then', async () => {
  const { clock, steps, writer, batch } = createDeriving();
  writer.submit(batch(1));
  await clock.run(100);
  writer.submit(batch(2));
  await clock.run(100);
  expect(steps).toEqual(['derive 1', 'checkpoint 1']);
  writer.setPaced(false);
  await clock.run(100);
  expect(steps.slice(2)).toEqual(['derive 2', 'checkpoint 2']);
  await writer.room();
  writer.submit(batch(3));
  await clock.run(100);
  expect(steps.slice(4)).toEqual(['derive 3', 'checkpoint 3']);
  writer.setPaced(true);
  writer.submit(batch(4));
  await clock.run(100);
  expect(steps).toHaveLength(6);
});

test('derives each batch of few messages at once: these are blocks of the head', async () => {
  const { clock, steps, writer, batch } = createDeriving();
  for (const height of [1, 2]) {
    writer.submit(batch(height, 1));
    await clock.run(100);
  }
  expect(steps).toEqual(['derive 1', 'checkpoint 1', 'derive 2', 'checkpoint 2']);
});

/** A writer, and each step that it takes: an insert of `insertMs`, or 50 ms, a derivation of 100, an announcement of 10. */
function createRecorded(insertMs: Readonly<Record<string, number>> = {}) {
  const clock = createSimClock(0, () => 0.5);
  const steps: string[] = [];
  const step = async (what: string, ms: number): Promise<void> => {
    steps.push(`${what} begins`);
    await clock.sleep(ms);
    steps.push(`${what} ends`);
  };
  const writer = createWriter({
    clickhouse: {
      async insertEncoded(table, _, bytes) {
        const what = `insert ${bytes.readUInt32LE()} into ${table}`;
        await step(what, insertMs[what] ?? 50);
      },
      command: async (sql) => await step(`derive ${sql}`, 100),
    },
    state: {
      async move() {
        steps.push('checkpoint');
        return [];
      },
    },
    lockServed: async () => ({ isLost: () => false, release: async () => {} }),
    announceIndexed: async () => await step('announcement', 10),
    clock,
    ...quiet(),
  });
  return { clock, steps, writer };
}

/** A share with one row in each kind of insert; null: with none. */
function shareOf(
  name: 'first' | 'last',
  row: number | null,
  removals: number | null,
  isDerivedLast = false,
): Share {
  const rowOf = (height: number | null) => {
    const encoder = createRowEncoder([{ name: 'height', type: 'UInt32' }]);
    encoder.add(height === null ? [] : [{ height }]);
    return new Map([['rows', encoder]]);
  };
  const projection = {
    ...accountLedger,
    name,
    insertLast: name === 'last',
    tables: {},
    derive: () => [{ sql: name, params: {} }],
    isDerivedLast: () => isDerivedLast,
  };
  return {
    target: { projection, build: { projection: name, version: 1, build: 1, names: { rows: name } } },
    tables: rowOf(row),
    removals: rowOf(removals),
    touched: [1],
    moves: new Map(),
  };
}

test('takes blocks back before all other rows, and announces new ones before anything is derived from them', async () => {
  const { clock, steps, writer } = createRecorded();
  writer.submit({ ...emptyBatch(1), shares: [shareOf('first', 2, 0), shareOf('last', 3, 1)] });
  await clock.run(1000);
  expect(steps).toEqual([
    'insert 0 into first begins',
    'insert 0 into first ends',
    'insert 1 into last begins',
    'insert 1 into last ends',
    'insert 2 into first begins',
    'insert 2 into first ends',
    'derive first begins',
    'derive first ends',
    'insert 3 into last begins',
    'insert 3 into last ends',
    'announcement begins',
    'derive last begins',
    'announcement ends',
    'derive last ends',
    'checkpoint',
  ]);
});

test('takes the blocks of a batch back before any row of a later one', async () => {
  const { clock, steps, writer } = createRecorded({ 'insert 1 into last': 400 });
  writer.submit({ ...emptyBatch(1), shares: [shareOf('first', 2, null), shareOf('last', null, 1)] });
  await clock.run(150);
  writer.submit({ ...emptyBatch(1), shares: [shareOf('first', 4, null), shareOf('last', 5, null)] });
  await clock.run(2000);
  const inserts = steps.filter((step) => step.startsWith('insert') && step.endsWith('ends'));
  expect(inserts.map((step) => step.split(' ')[1])).toEqual(['1', '2', '4', '5']);
});

test('derives what no reader of a new block uses after it was announced, and before the checkpoint', async () => {
  const { clock, steps, writer } = createRecorded();
  writer.submit({
    ...emptyBatch(1),
    shares: [shareOf('first', 1, null, true), shareOf('last', 3, null)],
  });
  await clock.run(2000);
  expect(steps.filter((step) => !step.startsWith('derive last'))).toEqual([
    'insert 1 into first begins',
    'insert 1 into first ends',
    'insert 3 into last begins',
    'insert 3 into last ends',
    'announcement begins',
    'announcement ends',
    'derive first begins',
    'derive first ends',
    'checkpoint',
  ]);
});

test('repeats an insert with its own rows, while later ones are encoded into memory that was used before', async () => {
  const columns: ColumnSpec[] = [{ name: 'height', type: 'UInt32' }];
  const buffers: SpareBuffers = [];
  const encoderOf = (height: number) => {
    const encoder = createRowEncoder(columns, buffers);
    encoder.add(Array.from({ length: 1000 }, () => ({ height })));
    return encoder;
  };
  const heightsIn = (bytes: Buffer): number[] => [
    ...new Set(Array.from({ length: bytes.length / 4 }, (_, row) => bytes.readUInt32LE(4 * row))),
  ];
  const attempts: number[][] = [];
  const later: RowEncoder[] = [];
  const clock = createSimClock(0, () => 0.5);
  const insert = createInsert({
    clickhouse: {
      async insertEncoded(_table, _columns, bytes) {
        later.push(encoderOf(90 + attempts.length));
        attempts.push(heightsIn(bytes));
        if (attempts.length === 2) throw unavailable('down', null);
      },
      command: async () => {},
    },
    clock,
    log: createLogger('test', 'silent'),
    metrics: createProjectionMetrics(new Registry()),
    signal: new AbortController().signal,
  });
  for (const height of [1, 2]) {
    const share = shareOf('first', null, null);
    const inserted = insert([{ ...share, tables: new Map([['rows', encoderOf(height)]]) }]);
    await clock.run(60_000);
    await inserted;
  }
  expect(attempts).toEqual([[1], [2], [2]]);
  expect(later.map((encoder) => heightsIn(encoder.take()))).toEqual([[90], [91], [92]]);
});
