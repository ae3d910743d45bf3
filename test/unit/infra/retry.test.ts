import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import type { Clock } from '../../../infra/clock.ts';
import { backoffMs, retry } from '../../../infra/retry.ts';

/** A clock whose sleeps pass at once, and are recorded. */
function virtualClock(): { clock: Clock; sleeps: number[] } {
  let now = 0;
  const sleeps: number[] = [];
  const clock: Clock = {
    now: () => now,
    wallTime: () => now,
    sleep: async (ms) => {
      sleeps.push(ms);
      now += ms;
    },
    turn: async () => {},
    random: () => 0,
  };
  return { clock, sleeps };
}

const failing = (failures: number) => async (attempt: number) => {
  if (attempt <= failures) throw new Error(`failure ${attempt}`);
  return attempt;
};

describe('retry', () => {
  it('returns the first success and doubles the delay up to its bound', async () => {
    const { clock, sleeps } = virtualClock();
    const result = await retry(failing(5), { isRetryable: () => true, baseMs: 100, maxMs: 500, clock });
    expect(result).toBe(6);
    expect(sleeps).toEqual([100, 200, 400, 500, 500]);
  });

  it('throws an error that is not retryable without another attempt', async () => {
    const { clock, sleeps } = virtualClock();
    await expect(retry(failing(1), { isRetryable: () => false, clock })).rejects.toThrow('failure 1');
    expect(sleeps).toEqual([]);
  });

  it('throws the last error when the next attempt would begin after the deadline', async () => {
    const { clock } = virtualClock();
    const options = { isRetryable: () => true, baseMs: 100, maxMs: 100, deadlineMs: 250, clock };
    await expect(retry(failing(9), options)).rejects.toThrow('failure 3');
  });

  it('throws the last error after the last attempt', async () => {
    const { clock, sleeps } = virtualClock();
    const options = { isRetryable: () => true, baseMs: 100, maxAttempts: 3, clock };
    await expect(retry(failing(9), options)).rejects.toThrow('failure 3');
    expect(sleeps).toEqual([100, 200]);
  });

  it('waits at least as long as an error asks for', async () => {
    const { clock, sleeps } = virtualClock();
    const minDelayMs = (error: unknown) => (String(error).endsWith('failure 1') ? 7000 : 0);
    await retry(failing(2), { isRetryable: () => true, baseMs: 100, minDelayMs, clock });
    expect(sleeps).toEqual([7000, 200]);
  });

  it('throws the reason of a signal that fires during the wait', async () => {
    const stop = new AbortController();
    const options = {
      isRetryable: () => true,
      baseMs: 60_000,
      maxMs: 60_000,
      signal: stop.signal,
      onRetry: () => stop.abort(new Error('stopped')),
    };
    await expect(retry(failing(1), options)).rejects.toThrow('stopped');
  });

  it('reports each failure with the delay that follows', async () => {
    const { clock } = virtualClock();
    const reports: unknown[] = [];
    const onRetry = (error: unknown, { attempt, delayMs }: { attempt: number; delayMs: number }) =>
      reports.push([String(error), attempt, delayMs]);
    await retry(failing(2), { isRetryable: () => true, baseMs: 10, onRetry, clock });
    expect(reports).toEqual([
      ['Error: failure 1', 1, 10],
      ['Error: failure 2', 2, 20],
    ]);
  });
});

describe('backoffMs', () => {
  it('stays between half of the exponential delay and the whole of it', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 2000 }),
        fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
        (failures, random) => {
          const whole = Math.min(10_000, 100 * 2 ** Math.min(failures - 1, 60));
          const delay = backoffMs(failures, {}, random);
          expect(delay).toBeLessThanOrEqual(whole);
          expect(delay).toBeGreaterThanOrEqual(Math.floor(whole / 2));
        },
      ),
    );
  });
});
