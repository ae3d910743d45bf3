import { Registry } from 'prom-client';
import { expect, test } from 'vitest';

import { systemClock } from '../../../../../infra/clock.ts';
import { createLogger } from '../../../../../infra/log.ts';
import { createProjectionMetrics } from '../../../../../projections/engine/metrics.ts';
import { createBatchLocks } from '../../../../../projections/engine/run/batch-locks.ts';
import { AppError } from '../../../../../schemas/errors.ts';

const batch = { shares: [] };

function locksAskedFor() {
  const asked: { answer: () => void; refuse: () => void }[] = [];
  let held = 0;
  const locks = createBatchLocks({
    lockServed: () =>
      new Promise((resolve, reject) => {
        asked.push({
          answer() {
            held += 1;
            resolve({ isLost: () => false, release: async () => void (held -= 1) });
          },
          refuse: () => reject(new AppError('STORE_UNAVAILABLE', 'away', { retryable: true })),
        });
      }),
    clock: { ...systemClock, sleep: () => systemClock.turn() },
    log: createLogger('test', 'silent'),
    metrics: createProjectionMetrics(new Registry()),
    signal: new AbortController().signal,
  });
  return { asked, locks, held: () => held };
}

const settle = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn += 1) await systemClock.turn();
};

test('takes locks in the order of the batches, also when one is retried', async () => {
  const { asked, locks } = locksAskedFor();
  const first = locks.take(batch);
  locks.renew();
  const second = locks.take(batch);
  await settle();
  expect(asked.length).toBe(1);
  asked[0]?.refuse();
  await settle();
  // The first again. Were it the second, a swap that waits for it would keep the first one waiting for ever.
  expect(asked.length).toBe(2);
  asked[1]?.answer();
  await first;
  await settle();
  expect(asked.length).toBe(3);
  asked[2]?.answer();
  await second;
});

test('releases a shared lock after the last of its batches, and then takes a new one', async () => {
  const { asked, locks, held } = locksAskedFor();
  const taking = [locks.take(batch), locks.take(batch)];
  await settle();
  expect(asked.length).toBe(1);
  asked[0]?.answer();
  const [one, other] = await Promise.all(taking);
  await one?.release();
  expect(held()).toBe(1);
  await other?.release();
  expect(held()).toBe(0);
  void locks.take(batch);
  await settle();
  expect(asked.length).toBe(2);
});
