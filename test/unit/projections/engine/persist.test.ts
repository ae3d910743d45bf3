import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { systemClock as clock } from '../../../../infra/clock.ts';
import { persist } from '../../../../projections/engine/persist.ts';

class Away extends Error {}
const isUnavailable = (error: unknown): boolean => error instanceof Away;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('tries again with pauses that grow to ten seconds and never come in step', async () => {
  const pauses: number[] = [];
  let refusals = 12;
  const work = persist(
    async () => {
      if ((refusals -= 1) >= 0) throw new Away();
      return 'done';
    },
    {
      isUnavailable,
      clock,
      signal: new AbortController().signal,
      onWaiting: (error, ms) => error !== null && pauses.push(ms),
    },
  );
  await vi.runAllTimersAsync();
  expect(await work).toBe('done');
  expect(pauses.length).toBe(12);
  for (const [attempt, ms] of pauses.entries()) {
    const longest = Math.min(10_000, 100 * 2 ** attempt);
    expect(ms).toBeGreaterThanOrEqual(longest / 2);
    expect(ms).toBeLessThanOrEqual(longest);
  }
});

test('gives an error that waiting cannot mend to the caller at once', async () => {
  let attempts = 0;
  const work = persist(
    async () => {
      attempts += 1;
      throw new TypeError('a bug');
    },
    { isUnavailable, clock, signal: new AbortController().signal, onWaiting: () => {} },
  );
  await expect(work).rejects.toThrow('a bug');
  expect(attempts).toBe(1);
});

test('stops waiting when told to, but lets an attempt end', async () => {
  const stop = new AbortController();
  const work = persist(() => Promise.reject(new Away()), {
    clock,
    isUnavailable,
    signal: stop.signal,
    onWaiting: () => {},
  });
  const outcome = expect(work).rejects.toThrow('stopped');
  await vi.advanceTimersByTimeAsync(5000);
  stop.abort(new Error('stopped'));
  await outcome;
  const last = persist(async () => 'written', {
    isUnavailable,
    clock,
    signal: stop.signal,
    onWaiting: () => {},
  });
  expect(await last).toBe('written');
});
