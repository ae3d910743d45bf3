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
