import { expect, test, vi } from 'vitest';

import { createUsageCounter } from '../../../../api/auth/key-usage.ts';
import { createLogger } from '../../../../infra/log.ts';
import { usageMessage } from '../../../../schemas/messages/usage.ts';
import type { UsageMessage } from '../../../../schemas/messages/usage.ts';

const HOUR = 3_600_000;

function world({ fails = false, acknowledged = Promise.resolve() } = {}) {
  const published: UsageMessage[] = [];
  let attempts = 0;
  let at = 20 * HOUR + 5000;
  const usage = createUsageCounter({
    publisher: {
      async publish(_, messages) {
        attempts += 1;
        if (fails) throw new Error('away');
        published.push(...messages.map(({ value }) => usageMessage.parse(value)));
        await acknowledged;
        return [];
      },
    },
    now: () => at,
    log: createLogger('test', 'silent'),
  });
  return {
    usage,
    published,
    attempts: () => attempts,
    later: (ms: number) => {
      at += ms;
    },
  };
}

test('the usage counter sums calls by key and hour, successful ones separately', async () => {
  const { usage, published, later } = world();
  usage.count(7, 200);
  usage.count(7, 404);
  usage.count(8, 299);
  later(1000);
  usage.count(7, 201);
  later(HOUR);
  usage.count(7, 503);
  expect(published).toEqual([]);
  await usage.close();
  const common = { type: 'usage.counted', v: 1, counted_at: 21 * HOUR + 6000 };
  expect(published).toEqual([
    { ...common, key_id: 7, hour: 72_000, calls: 3, successful: 2, last_used_at: 20 * HOUR + 6000 },
    { ...common, key_id: 8, hour: 72_000, calls: 1, successful: 1, last_used_at: 20 * HOUR + 5000 },
    { ...common, key_id: 7, hour: 75_600, calls: 1, successful: 0, last_used_at: 21 * HOUR + 6000 },
  ]);
});

test('the usage counter neither blocks nor stops while Kafka is unavailable', async () => {
  const { usage, attempts } = world({ fails: true });
  usage.count(7, 200);
  await usage.close();
  expect(attempts()).toBe(1);
});

test('the usage counter publishes the calls that it counted while it was closing', async () => {
  const { promise: acknowledged, resolve } = Promise.withResolvers<void>();
  const { usage, published } = world({ acknowledged });
  usage.count(7, 200);
  const closed = usage.close();
  await vi.waitFor(() => expect(published).toHaveLength(1));
  usage.count(8, 200);
  resolve();
  await closed;
  expect(published.map(({ key_id }) => key_id)).toEqual([7, 8]);
});
