import { expect, it } from 'vitest';

import { createRateLimit } from '../../../api/rate-limit.ts';

it('lets so many calls through in any window, tells when the next one is, and counts none that it refused', () => {
  let now = 0;
  const calls = createRateLimit({ limit: 3, windowMs: 60_000, now: () => now });
  const take = (at: number, name = 'anna') => {
    now = at;
    return calls.take(name);
  };
  expect([take(0), take(10_000), take(20_000)]).toEqual([null, null, null]);
  expect(take(59_999)).toBeCloseTo(0.001);
  expect(take(59_999, 'bert')).toBe(null);
  for (let i = 0; i < 50; i += 1) take(59_999);
  expect(take(60_000)).toBe(null);
  expect(take(60_000)).toBe(10);
  expect([take(70_000), take(70_000)]).toEqual([null, 10]);
});
