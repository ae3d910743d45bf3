import { Registry } from 'prom-client';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';

import { systemClock } from '../../../infra/clock.ts';
import { createAlarms } from '../../../infra/health/alarms.ts';
import { raisedAlarms } from '../../../infra/health/service-health.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { runMatcher } from '../../../pipeline/dispatch/match/matcher.ts';
import { createDispatchMetrics } from '../../../pipeline/dispatch/metrics.ts';
import type { Loop } from '../../../infra/loop.ts';
import { createLogReaderRetry } from '../../../pipeline/log-reading.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import { accepted, makeBlock } from '../../support/chain-messages.ts';
import { projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** What a matcher does with messages that no webhook can match, around the creation of the first one. Real Kafka and PostgreSQL. */

let world: ProjectionWorld;
const running = new Set<Loop>();
const failures: unknown[] = [];

beforeAll(async () => {
  world = await projectionWorld();
  await world.pool.query('CREATE TABLE hooks (created_for text)');
  await world.pool.query('CREATE TABLE matched (matcher text, height integer)');
});

afterEach(async () => {
  for (const one of running) await stop(one);
  await world.pool.query('TRUNCATE hooks');
  expect(failures).toEqual([]);
});

afterAll(async () => {
  await world.close();
});

const stopping = new WeakMap<Loop, AbortController>();
async function stop(matcher: Loop): Promise<void> {
  running.delete(matcher);
  stopping.get(matcher)?.abort();
  await matcher.stop();
}

const hasHook = async (): Promise<boolean> => (await world.pool.query('SELECT FROM hooks')).rowCount !== 0;

/** A matcher that is open while there is a hook; it stores the height of every message that it matches. */
async function start(
  name: string,
  {
    open = hasHook,
    kafka = world.kafka,
  }: { readonly open?: () => Promise<boolean>; readonly kafka?: Kafka } = {},
): Promise<Loop> {
  const { pool, log } = world;
  const ending = new AbortController();
  const matcher = await runMatcher(
    {
      name,
      topic: topics.chainBlocks,
      concurrency: 1,
      since: async () => null,
      open: async () =>
        (await open())
          ? {
              isRelevant: () => true,
              match:
                async ({ block }) =>
                async (tx) =>
                  void (await tx.query('INSERT INTO matched VALUES ($1, $2)', [name, block.height])),
            }
          : null,
    },
    {
      kafka,
      pool,
      log,
      metrics: createDispatchMetrics(new Registry()),
      clock: systemClock,
      retryWhileUnavailable: createLogReaderRetry('test', log, ending.signal),
      signal: ending.signal,
      onMatched: () => {},
    },
    (error) => void failures.push(error),
  );
  stopping.set(matcher, ending);
  running.add(matcher);
  return matcher;
}

const publish = async (...heights: readonly number[]): Promise<void> =>
  await world.publish(heights.map((height) => accepted(makeBlock({ height, transactions: [] }), height)));

const addHook = async (): Promise<void> => void (await world.pool.query("INSERT INTO hooks VALUES ('')"));

async function matchedBy(name: string): Promise<number[]> {
  const { rows } = await world.pool.query<{ height: number }>(
    'SELECT height FROM matched WHERE matcher = $1 ORDER BY height',
    [name],
  );
  return rows.map(({ height }) => height);
}

async function checkpoint(name: string, partition: number): Promise<number> {
  const { rows } = await world.pool.query<{ next_offset: number }>(
    "SELECT next_offset FROM tds.checkpoints WHERE consumer = 'dispatch-' || $1 AND partition = $2",
    [name, partition],
  );
  return rows[0]?.next_offset ?? Number.NaN;
}

/** Messages of a partition that the stored checkpoint is not past. */
async function behind(name: string, partition: number): Promise<number> {
  const ends = await world.kafka.offsets(topics.chainBlocks);
  return (ends[partition]?.high ?? Number.NaN) - (await checkpoint(name, partition));
}

it('clears the alarm of a wait that an earlier process has left, though nothing is matched any more', async () => {
  const name = 'webhooks.waiting:quiet:chain.blocks:0';
  await createAlarms(world.pool).raise(name, 'waits');
  await start('quiet');
  await until(async () => (await raisedAlarms(world.pool)).length === 0);
});

it('fetches no message while no webhook can match one, and moves its checkpoint past them', async () => {
  /** Offsets. */
  const fetched: number[] = [];
  const kafka: Kafka = {
    ...world.kafka,
    consume: async (options) =>
      await world.kafka.consume({
        ...options,
        async onBatch(batch) {
          fetched.push(...batch.messages.map(({ offset }) => offset));
          return await options.onBatch(batch);
        },
      }),
  };
  await start('idle', { kafka });
  // The first look has stopped the fetching.
  await until(async () => (await behind('idle', 0)) === 0);
  await sleep(1000);
  const heights = Array.from({ length: 50 }, (_, i) => 100 + i);
  await publish(...heights);
  await until(async () => (await behind('idle', 0)) === 0);
  expect(fetched).toEqual([]);
  await addHook();
  await publish(200);
  await until(async () => (await matchedBy('idle')).includes(200));
  expect(fetched).toEqual([heights.length]);
});

it('matches a message that is published while a look that finds no webhook ends', async () => {
  let looks = 0;
  await start('raced', {
    async open() {
      const found = await hasHook();
      looks += 1;
      if (looks === 3) {
        // The webhook is there before its first message, and this look has not seen either.
        await addHook();
        await publish(300);
      }
      return found;
    },
  });
  await until(async () => (await matchedBy('raced')).includes(300));
  expect(await matchedBy('raced')).toEqual([300]);
});

it('matches every message after the first webhook once, over two processes, one of which ends', async () => {
  const one = await start('both');
  const two = await start('both');
  const isDone = new AbortController();
  const after: number[] = [];
  let hasWebhook = false;
  /** Heights of two partitions in turn. */
  const publishing = (async () => {
    for (let height = 2048; !isDone.signal.aborted; height += 1) {
      const isKnown = hasWebhook;
      for (const each of [height, height + 1024]) {
        await publish(each);
        if (isKnown) after.push(each);
      }
      await sleep(20);
    }
  })();
  const partitions = [2048, 3072].map(partitionOfHeight);
  for (const partition of partitions) await until(async () => (await checkpoint('both', partition)) > 0);
  await addHook();
  hasWebhook = true;
  one.wake();
  await sleep(500);
  await stop(one);
  two.wake();
  await sleep(2000);
  isDone.abort();
  await publishing;
  expect(after.length).toBeGreaterThan(20);
  for (const partition of partitions) await until(async () => (await behind('both', partition)) === 0);
  const matched = await matchedBy('both');
  expect(after.filter((height) => !matched.includes(height))).toEqual([]);
  expect(matched.length).toBe(new Set(matched).size);
});
