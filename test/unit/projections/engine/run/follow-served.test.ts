import { Registry } from 'prom-client';
import { expect, test } from 'vitest';

import { systemClock } from '../../../../../infra/clock.ts';
import { createLogger } from '../../../../../infra/log.ts';
import { createProjectionMetrics } from '../../../../../projections/engine/metrics.ts';
import { followServed } from '../../../../../projections/engine/run/follow-served.ts';
import type { ProjectionRun } from '../../../../../projections/engine/run/lifetime.ts';
import { AppError } from '../../../../../schemas/errors.ts';

const deps = {
  log: createLogger('test', 'silent'),
  metrics: createProjectionMetrics(new Registry()),
  clock: { ...systemClock, sleep: () => systemClock.turn() },
};

/** A run of which the test decides when it ends. */
const pendingRun = () => {
  const ending = Promise.withResolvers<void>();
  const run: ProjectionRun = { done: ending.promise, stop: async () => ending.resolve() };
  return { run, retire: () => ending.reject(new AppError('BUILD_RETIRED', 'Build 1 is no longer served')) };
};
const reset = (): Error => Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });

test('restarts after a swap although a store is unavailable at first', async () => {
  const [first, second] = [pendingRun(), pendingRun()];
  const restarted = Promise.withResolvers<void>();
  let starts = 0;
  const follower = await followServed(async () => {
    starts += 1;
    if (starts === 1) return first.run;
    if (starts === 2) throw reset();
    restarted.resolve();
    return second.run;
  }, deps);
  first.retire();
  await Promise.race([restarted.promise, follower.done]);
  expect(starts).toBe(3);
  await follower.stop();
  await follower.done;
});

test('stops while a restart waits for a store', async () => {
  const { run, retire } = pendingRun();
  const failed = Promise.withResolvers<void>();
  let starts = 0;
  const follower = await followServed(async () => {
    starts += 1;
    if (starts === 1) return run;
    failed.resolve();
    throw reset();
  }, deps);
  retire();
  await failed.promise;
  await follower.stop();
  const stoppedAt = starts;
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(starts).toBe(stoppedAt);
});

test('throws when the first start fails', async () => {
  await expect(followServed(() => Promise.reject(reset()), deps)).rejects.toThrow('ECONNRESET');
});
