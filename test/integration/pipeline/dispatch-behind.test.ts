import { Registry } from 'prom-client';
import { afterAll, beforeAll, expect, it } from 'vitest';

import { systemClock } from '../../../infra/clock.ts';
import { runMatcher } from '../../../pipeline/dispatch/match/matcher.ts';
import { createDispatchMetrics } from '../../../pipeline/dispatch/metrics.ts';
import { createLogReaderRetry } from '../../../pipeline/log-reading.ts';
import { topics } from '../../../schemas/topics.ts';
import { accepted, makeBlock } from '../../support/chain-messages.ts';
import { projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** What is behindAtMatch of a matcher that is behind, and how it goes on. Real Kafka and PostgreSQL. */

let world: ProjectionWorld;

beforeAll(async () => {
  world = await projectionWorld();
});

afterAll(async () => {
  await world.close();
});

it('reports while it matches how many messages are left', async () => {
  const heights = [1, 2, 3];
  await world.publish(heights.map((height) => accepted(makeBlock({ height, transactions: [] }), height)));
  const registry = new Registry();
  const metrics = createDispatchMetrics(registry);
  const behind = async (): Promise<number | undefined> => (await metrics.lag.get()).values[0]?.value;
  const behindAtMatch: (number | undefined)[] = [];
  const { kafka, pool, log } = world;
  const stopping = new AbortController();
  const matcher = await runMatcher(
    {
      name: 'test',
      topic: topics.chainBlocks,
      concurrency: 1,
      since: async () => 0,
      open: async () => ({
        isRelevant: () => true,
        async match() {
          behindAtMatch.push(await behind());
          return null;
        },
      }),
    },
    {
      kafka,
      pool,
      log,
      metrics,
      clock: systemClock,
      retryWhileUnavailable: createLogReaderRetry('test', log, stopping.signal),
      signal: stopping.signal,
      onMatched: () => {},
    },
    () => stopping.abort(),
  );
  try {
    await until(async () => behindAtMatch.length === heights.length && (await behind()) === 0);
    expect(behindAtMatch).toEqual([3, 2, 1]);
  } finally {
    await matcher.stop();
  }
});

it('opens its matcher again when a rebuild has dropped a table that it read', async () => {
  const { kafka, pool, log } = world;
  await world.publish([accepted(makeBlock({ height: 4, transactions: [] }), 4)]);
  const failures: unknown[] = [];
  const read: string[] = [];
  const stopping = new AbortController();
  await pool.query('CREATE SCHEMA new_model CREATE TABLE found (n integer)');
  const served = ['old_model', 'new_model'];
  const matcher = await runMatcher(
    {
      name: 'moved',
      topic: topics.chainBlocks,
      concurrency: 1,
      since: async () => 0,
      async open() {
        const schema = served.length > 1 ? served.shift() : served[0];
        return {
          isRelevant: () => true,
          async match({ block }) {
            await pool.query(`SELECT n FROM ${schema}.found`);
            read.push(`${schema} ${block.height}`);
            return null;
          },
        };
      },
    },
    {
      kafka,
      pool,
      log,
      metrics: createDispatchMetrics(new Registry()),
      clock: systemClock,
      retryWhileUnavailable: createLogReaderRetry('test', log, stopping.signal),
      signal: stopping.signal,
      onMatched: () => {},
    },
    (error) => {
      failures.push(error);
      stopping.abort();
    },
  );
  try {
    await until(async () => read.length === 4 || failures.length > 0);
    expect([read, failures]).toEqual([[1, 2, 3, 4].map((height) => `new_model ${height}`), []]);
  } finally {
    stopping.abort();
    await matcher.stop();
  }
});
