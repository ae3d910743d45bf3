import { Registry } from 'prom-client';
import { expect, it, vi } from 'vitest';

import { systemClock } from '../../../../../infra/clock.ts';
import type { Kafka } from '../../../../../infra/kafka/client.ts';
import { startSkipping } from '../../../../../pipeline/dispatch/match/skipping.ts';
import { createDispatchMetrics } from '../../../../../pipeline/dispatch/metrics.ts';
import { topics } from '../../../../../schemas/topics.ts';

it('reports no lag while no webhook can match, however fast the log grows', async () => {
  const metrics = createDispatchMetrics(new Registry());
  let now = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  const lags: number[] = [];
  const passed: (number | undefined)[] = [];
  const checkedThreeTimes = Promise.withResolvers<void>();
  const loop = startSkipping({
    matcher: 'blocks',
    topic: topics.chainBlocks,
    kafka: { offsets: async () => [{ partition: 0, low: 0, high: now }] } as unknown as Kafka,
    metrics,
    retryWhileUnavailable: (work) => work(),
    clock: {
      ...systemClock,
      async sleep(ms) {
        const { values } = await metrics.lag.get();
        lags.push(...values.map(({ value }) => value));
        now += ms;
        if (lags.length === 3) checkedThreeTimes.resolve();
      },
    },
    isOpen: async () => false,
    consumer: {
      async skip(_, offsets) {
        passed.push(offsets.get(0));
        return [0];
      },
      resumeSkipped: async () => {},
    },
    isPaused: () => false,
    onSkipped: async () => {},
    onFatal: checkedThreeTimes.reject,
  });
  await checkedThreeTimes.promise;
  await loop.stop();
  expect(passed.slice(0, 3)).toEqual([undefined, 0, 5000]);
  expect(lags.slice(0, 3)).toEqual([0, 0, 0]);
});

it('resumes the partitions that an interrupted check has stopped', async () => {
  const resumed = Promise.withResolvers<string>();
  let checks = 0;
  const loop = startSkipping({
    matcher: 'blocks',
    topic: topics.chainBlocks,
    kafka: { offsets: () => Promise.reject(new Error('unavailable')) } as unknown as Kafka,
    metrics: createDispatchMetrics(new Registry()),
    retryWhileUnavailable: (work) => work().catch(work),
    clock: {
      ...systemClock,
      async sleep(ms, signal) {
        resumed.resolve('nothing');
        await systemClock.sleep(ms, signal);
      },
    },
    // The first webhook is created before the check is repeated.
    isOpen: async () => (checks += 1) > 1,
    consumer: {
      skip: async () => [0],
      resumeSkipped: async (topic) => resumed.resolve(topic),
    },
    isPaused: () => false,
    onSkipped: async () => {},
    onFatal: resumed.reject,
  });
  expect(await resumed.promise).toBe(topics.chainBlocks.name);
  await loop.stop();
});
