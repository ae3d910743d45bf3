import { Registry } from 'prom-client';
import { afterAll, beforeAll, expect, it } from 'vitest';

import { runMatcher } from '../../../pipeline/dispatch/match/matcher.ts';
import { createDispatchMetrics } from '../../../pipeline/dispatch/metrics.ts';
import { createPatience } from '../../../pipeline/log-reading.ts';
import { topics } from '../../../schemas/topics.ts';
import { accepted, makeBlock } from '../../support/chain-messages.ts';
import { projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** What is told of a matcher that is behind. Real Kafka and PostgreSQL. */

let world: ProjectionWorld;

beforeAll(async () => {
  world = await projectionWorld();
});

afterAll(async () => {
  await world.close();
});

it('tells while it matches how many messages it has not looked at', async () => {
  const heights = [1, 2, 3];
  await world.publish(heights.map((height) => accepted(makeBlock({ height, transactions: [] }), height)));
  const registry = new Registry();
  const metrics = createDispatchMetrics(registry);
  const behind = async (): Promise<number | undefined> => (await metrics.position.get()).values[0]?.value;
  const told: (number | undefined)[] = [];
  const { kafka, pool, log } = world;
  const stopping = new AbortController();
  const matcher = await runMatcher(
    {
      name: 'test',
      topic: topics.chainBlocks,
      fetchBytes: 1_000_000,
      since: async () => 0,
      open: async () => ({
        wants: () => true,
        async match() {
          told.push(await behind());
          return null;
        },
      }),
    },
    {
      kafka,
      pool,
      log,
      metrics,
      patiently: createPatience('test', log, stopping.signal),
      onMatched: () => {},
    },
    () => stopping.abort(),
  );
  try {
    await until(async () => told.length === heights.length && (await behind()) === 0);
    expect(told).toEqual([3, 2, 1]);
  } finally {
    await matcher.stop();
  }
});
