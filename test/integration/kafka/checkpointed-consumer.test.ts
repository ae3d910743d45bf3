import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';

import { startCheckpointedConsumer } from '../../../infra/kafka/checkpointed-consumer.ts';
import type {
  CheckpointedBatch,
  CheckpointedConsumer,
  CheckpointedConsumerOptions,
} from '../../../infra/kafka/checkpointed-consumer.ts';
import type { Handled } from '../../../infra/kafka/client.ts';
import { createRetryWhileUnavailable } from '../../../infra/retry-while-unavailable.ts';
import { AppError } from '../../../schemas/errors.ts';
import { topics } from '../../../schemas/topics.ts';
import { observerWorld } from '../../support/observer-world.ts';
import type { ObserverWorld } from '../../support/observer-world.ts';

const topic = topics.chainStatus;

let world: ObserverWorld;
let stop: AbortController;
let running: { stop(): Promise<void> }[] = [];
let fatal: unknown[] = [];
let name = '';
/** The first offset that a test publishes at. */
let first = 0;

beforeAll(async () => {
  world = await observerWorld();
  await world.pool.query('CREATE TABLE handled (consumer text, log_offset bigint)');
});
afterAll(() => world.close());
beforeEach(async ({ task }) => {
  stop = new AbortController();
  fatal = [];
  name = `test-${task.id}`;
  first = (await world.kafka.offsets(topic))[0]?.high ?? 0;
});
afterEach(stopAll);

async function stopAll(): Promise<void> {
  stop.abort(new Error('stopped'));
  await Promise.all(running.map((one) => one.stop()));
  running = [];
}

async function publish(count: number): Promise<void> {
  const publisher = world.kafka.publisher();
  const value = { type: 'chunk.finished' as const, v: 1 as const, observed_at: 1, name: 'x' };
  await publisher.publish(
    topic,
    Array.from({ length: count }, () => ({ value })),
  );
  await publisher.close();
}

async function start(
  handle: (batch: CheckpointedBatch) => Promise<Handled>,
  more: Partial<CheckpointedConsumerOptions> = {},
): Promise<CheckpointedConsumer> {
  const { kafka, pool, log } = world;
  const { signal } = stop;
  const consumer = await startCheckpointedConsumer({
    kafka,
    pool,
    log,
    name,
    topics: [topic],
    outsideLog: 'restart',
    initialOffset: async () => first,
    handle,
    retryWhileUnavailable: createRetryWhileUnavailable({ component: name, log, signal }),
    signal,
    onError: (error) => fatal.push(error),
    ...more,
  });
  running.push(consumer);
  return consumer;
}

/** Stores the offsets of a batch with the checkpoint. */
async function store(batch: CheckpointedBatch, messages = batch.messages): Promise<Handled> {
  await batch.commit((messages.at(-1)?.offset ?? 0) + 1, async (tx) => {
    for (const { offset } of messages) await tx.query('INSERT INTO handled VALUES ($1, $2)', [name, offset]);
  });
  return 'done';
}

async function handled(): Promise<number[]> {
  const { rows } = await world.pool.query<{ log_offset: number }>(
    'SELECT log_offset FROM handled WHERE consumer = $1 ORDER BY log_offset',
    [name],
  );
  return rows.map((row) => row.log_offset - first);
}

async function checkpoint(): Promise<number | null> {
  const { rows } = await world.pool.query<{ next_offset: number }>(
    'SELECT next_offset FROM tds.checkpoints WHERE consumer = $1 AND build = 0',
    [name],
  );
  return rows[0] === undefined ? null : rows[0].next_offset - first;
}

async function setCheckpoint(next: number, topicId?: string): Promise<void> {
  await world.pool.query(
    `INSERT INTO tds.checkpoints (consumer, topic, partition, topic_id, next_offset) VALUES ($1, $2, 0, $3, $4)
     ON CONFLICT (consumer, build, topic, partition) DO UPDATE SET next_offset = excluded.next_offset`,
    [name, topic.name, topicId ?? (await world.kafka.topicId(topic)), next],
  );
}

const reaches = (next: number): Promise<void> =>
  vi.waitFor(async () => expect(await checkpoint()).toBe(next), { timeout: 60_000, interval: 20 });
const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

test('starts once Kafka answers', async () => {
  let failures = 0;
  const consume: typeof world.kafka.consume = async (options) => {
    if ((failures += 1) === 1) throw new AppError('STORE_UNAVAILABLE', 'no answer', { retryable: true });
    return await world.kafka.consume(options);
  };
  await start(store, { kafka: { ...world.kafka, consume } });
  await publish(1);
  await reaches(1);
  expect(failures).toBe(2);
});

test('moves the checkpoint past a batch that is done, and resumes from it', async () => {
  await publish(3);
  await start(async () => 'done');
  await reaches(3);
  await stopAll();

  stop = new AbortController();
  await publish(2);
  const seen: number[] = [];
  await start(async ({ messages }) => {
    seen.push(...messages.map(({ offset }) => offset - first));
    return 'done';
  });
  await reaches(5);
  expect(seen).toEqual([3, 4]);
});

test('handles messages again when PostgreSQL has lost their transactions, without a new message', async () => {
  await publish(5);
  await start(store, { checkpointCheckMs: 50 });
  await reaches(5);
  // A fail-over: checkpoint and rows go back together.
  await world.pool.query(
    `WITH lost AS (DELETE FROM handled WHERE consumer = $1 AND log_offset >= $2)
     UPDATE tds.checkpoints SET next_offset = $2 WHERE consumer = $1`,
    [name, first + 2],
  );
  await reaches(5);
  expect(await handled()).toEqual(upTo(5));
  expect(fatal).toEqual([]);
});

test('stores nothing past the last commit of an abandoned batch, and brings no further batch', async () => {
  await publish(5);
  let batches = 0;
  await start(async (batch) => {
    batches += 1;
    await store(batch, batch.messages.slice(0, 2));
    return 'abandoned';
  });
  await reaches(2);
  await publish(1);
  await new Promise((resolve) => {
    setTimeout(resolve, 1000);
  });
  await stopAll();
  expect(batches).toBe(1);
  expect(await checkpoint()).toBe(2);

  stop = new AbortController();
  await start(store);
  await reaches(6);
  expect(await handled()).toEqual(upTo(6));
});

test('takes an error of the handler after the signal for an abandoned batch', async () => {
  await publish(3);
  const waiting = Promise.withResolvers<void>();
  await start(async () => {
    waiting.resolve();
    await new Promise((_, reject) => {
      stop.signal.addEventListener('abort', () => reject(stop.signal.reason));
    });
    return 'done';
  });
  await waiting.promise;
  await stopAll();
  expect(await checkpoint()).toBe(0);
  expect(fatal).toEqual([]);
});

test('reports an error of the handler and leaves the checkpoint', async () => {
  await publish(2);
  await start(async () => {
    throw new TypeError('a bug');
  });
  await vi.waitFor(() => expect(fatal).toHaveLength(1), { timeout: 60_000 });
  expect(fatal[0]).toMatchObject({ message: 'a bug' });
  expect(await checkpoint()).toBe(0);
});

test('rolls the work back on a checkpoint conflict and resumes from the stored offset', async () => {
  await publish(6);
  let isFirst = true;
  await start(async (batch) => {
    // Another process has handled the first four meanwhile.
    if (isFirst) await setCheckpoint(first + 4);
    isFirst = false;
    return await store(batch);
  });
  await reaches(6);
  expect(await handled()).toEqual([4, 5]);
});

test('resumes from a conflict at the very offset of the batch', async () => {
  await publish(3);
  let isFirst = true;
  await start(async (batch) => {
    if (isFirst) await world.pool.query('DELETE FROM tds.checkpoints WHERE consumer = $1', [name]);
    isFirst = false;
    return await store(batch);
  });
  await reaches(3);
  expect(await handled()).toEqual(upTo(3));
});

test('handles every message once with two consumers of one group', async () => {
  await start(store);
  await start(store);
  for (let round = 0; round < 5; round += 1) await publish(20);
  await reaches(100);
  expect(await handled()).toEqual(upTo(100));
});

test('stops at a checkpoint outside the log', async () => {
  await setCheckpoint(first + 1000);
  await start(store, { outsideLog: 'stop' });
  await vi.waitFor(() => expect(fatal).toHaveLength(1), { timeout: 60_000 });
  expect(fatal[0]).toMatchObject({ code: 'CHECKPOINT_OUTSIDE_LOG' });
});

test('clamps a checkpoint outside the log to its end', async () => {
  await publish(2);
  await setCheckpoint(first + 1000);
  await start(store, { outsideLog: 'clamp' });
  await reaches(2);
  await publish(1);
  await reaches(3);
  expect(await handled()).toEqual([2]);
});

test.each(['restart', 'clamp'] as const)(
  'begins again (%s) with a checkpoint of another topic id',
  async (outsideLog) => {
    await publish(3);
    await setCheckpoint(first + 2, 'another');
    await start(store, { outsideLog });
    await reaches(3);
    expect(await handled()).toEqual(upTo(3));
  },
);

test('resumes the partitions that a failed skip has stopped', async () => {
  const unavailable = new Error('unavailable');
  let isAvailable = true;
  const pool = new Proxy(world.pool, {
    get(target, property) {
      const value: unknown = Reflect.get(target, property);
      if (typeof value !== 'function') return value;
      if (property === 'query' && !isAvailable) return () => Promise.reject(unavailable);
      return value.bind(target) as unknown;
    },
  });
  const consumer = await start(store, { pool });
  await publish(1);
  await reaches(1);
  isAvailable = false;
  await expect(consumer.skip(topic.name, new Map())).rejects.toThrow(unavailable);
  isAvailable = true;
  await publish(1);
  await consumer.resumeSkipped(topic.name);
  await reaches(2);
});
