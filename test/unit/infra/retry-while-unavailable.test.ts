import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { createLogger } from '../../../infra/log.ts';
import { createRetryWhileUnavailable, isStoreUnavailable } from '../../../infra/retry-while-unavailable.ts';
import type { RetryWhileUnavailable } from '../../../infra/retry-while-unavailable.ts';
import { AppError } from '../../../schemas/errors.ts';

class Unavailable extends Error {}

let stop: AbortController;
let waiting: boolean[];
let lines: { delayMs?: number }[];
let retryWhileUnavailable: RetryWhileUnavailable;

beforeEach(() => {
  vi.useFakeTimers();
  stop = new AbortController();
  waiting = [];
  lines = [];
  const log = createLogger('test', 'debug', { write: (line) => lines.push(JSON.parse(line)) });
  retryWhileUnavailable = createRetryWhileUnavailable({
    component: 'clickhouse',
    isRetryable: (error) => error instanceof Unavailable,
    signal: stop.signal,
    log,
    onWaiting: (isWaiting) => waiting.push(isWaiting),
  });
});
afterEach(() => void vi.useRealTimers());

test('retries with delays that grow to ten seconds, each less up to half by chance', async () => {
  let refusals = 12;
  const work = retryWhileUnavailable(async () => {
    if ((refusals -= 1) >= 0) throw new Unavailable();
    return 'done';
  });
  await vi.runAllTimersAsync();
  expect(await work).toBe('done');
  const delays = lines.flatMap(({ delayMs }) => delayMs ?? []);
  expect(delays.length).toBe(12);
  for (const [attempt, ms] of delays.entries()) {
    const longest = Math.min(10_000, 100 * 2 ** attempt);
    expect(ms).toBeGreaterThanOrEqual(longest / 2);
    expect(ms).toBeLessThanOrEqual(longest);
  }
});

test('reports the wait and its end', async () => {
  let refusals = 1;
  const work = retryWhileUnavailable(async () => {
    if ((refusals -= 1) >= 0) throw new Unavailable();
  });
  await vi.runAllTimersAsync();
  await work;
  expect(waiting).toEqual([true, false]);
  expect(lines).toMatchObject([
    { component: 'clickhouse', attempt: 1, msg: 'store unavailable, retrying' },
    { component: 'clickhouse', failures: 1, msg: 'store available again' },
  ]);
});

test('throws an error that is not retryable at once', async () => {
  let attempts = 0;
  const work = retryWhileUnavailable(async () => {
    attempts += 1;
    throw new TypeError('a bug');
  });
  await expect(work).rejects.toThrow('a bug');
  expect(attempts).toBe(1);
  expect(waiting).toEqual([]);
});

test('ends the wait when the signal fires, and lets an attempt under way end', async () => {
  const work = retryWhileUnavailable(() => Promise.reject(new Unavailable()));
  const outcome = expect(work).rejects.toThrow('stopped');
  await vi.advanceTimersByTimeAsync(5000);
  stop.abort(new Error('stopped'));
  await outcome;
  expect(await retryWhileUnavailable(async () => 'written')).toBe('written');
});

test('takes a retryable error of ours and an unavailable PostgreSQL for an unavailable store', () => {
  expect(isStoreUnavailable(new AppError('STORE_UNAVAILABLE', 'Kafka', { retryable: true }))).toBe(true);
  expect(isStoreUnavailable(Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }))).toBe(true);
  expect(isStoreUnavailable(new AppError('INVALID', 'a field'))).toBe(false);
  expect(isStoreUnavailable(new TypeError('a bug'))).toBe(false);
});
