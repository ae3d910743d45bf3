import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { watchIndexedHeight } from '../../../../api/health/indexed-height.ts';
import type { IndexedHeight } from '../../../../api/health/indexed-height.ts';
import { createLogger } from '../../../../infra/log.ts';

let index: number | null = null;
let reads = 0;
let watch: IndexedHeight | null = null;
const start = async (height: number | null): Promise<IndexedHeight> => {
  index = height;
  reads = 0;
  const started = watchIndexedHeight(
    async () => {
      reads += 1;
      return index;
    },
    createLogger('test', 'silent'),
  );
  watch = started;
  await vi.advanceTimersByTimeAsync(0);
  expect(started.current()).toBe(height);
  return started;
};
beforeEach(() => void vi.useFakeTimers());
afterEach(async () => {
  await watch?.close();
  vi.useRealTimers();
});

const never = new AbortController().signal;

it('reaches at once a height that is indexed', async () => {
  const height = await start(5);
  expect(await height.reaches(5, 0, never)).toBe(true);
});

it('reaches a height that is indexed meanwhile, without a notification', async () => {
  const height = await start(5);
  const reached = height.reaches(6, 2000, never);
  await vi.advanceTimersByTimeAsync(0);
  index = 7;
  await vi.advanceTimersByTimeAsync(200);
  expect(await reached).toBe(true);
});

it('reaches no height before the time is up, nor one that was reverted', async () => {
  const height = await start(null);
  const results: boolean[] = [];
  void height.reaches(0, 300, never).then((isReached) => results.push(isReached));
  await vi.advanceTimersByTimeAsync(299);
  expect(results).toEqual([]);
  await vi.advanceTimersByTimeAsync(1);
  expect(results).toEqual([false]);
  index = 4;
  const reached = height.reaches(4, 2000, never);
  await vi.advanceTimersByTimeAsync(200);
  expect(await reached).toBe(true);
  index = 3;
  height.notify();
  await vi.advanceTimersByTimeAsync(0);
  expect(height.current()).toBe(3);
  const reachedAgain = height.reaches(4, 0, never);
  await vi.advanceTimersByTimeAsync(0);
  expect(await reachedAgain).toBe(false);
});

it('reads once for all that wait, and no more when they have left', async () => {
  const height = await start(1);
  const left = new AbortController();
  const waiting = Array.from({ length: 100 }, () => height.reaches(2, 60_000, left.signal));
  reads = 0;
  await vi.advanceTimersByTimeAsync(1000);
  expect(reads).toBeGreaterThan(1);
  expect(reads).toBeLessThan(10);
  left.abort();
  expect(new Set(await Promise.all(waiting))).toEqual(new Set([false]));
  reads = 0;
  await vi.advanceTimersByTimeAsync(1000);
  expect(reads).toBeLessThan(2);
});
