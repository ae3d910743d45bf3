import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { createRate } from '../../../infra/rate.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test('ends as many waits as are allowed within any second, in their order', async () => {
  const turn = createRate(2);
  const ended: number[] = [];
  const wait = (id: number): void => void turn().then(() => ended.push(id));
  wait(1);
  await vi.advanceTimersByTimeAsync(600);
  for (const id of [2, 3, 4]) wait(id);
  await vi.advanceTimersByTimeAsync(399);
  expect(ended).toEqual([1, 2]);
  await vi.advanceTimersByTimeAsync(1);
  expect(ended).toEqual([1, 2, 3]);
  await vi.advanceTimersByTimeAsync(599);
  expect(ended).toEqual([1, 2, 3]);
  await vi.advanceTimersByTimeAsync(1);
  expect(ended).toEqual([1, 2, 3, 4]);
});

test('counts a wait that has ended also after its signal has fired, and none that the signal has ended', async () => {
  const turn = createRate(1);
  const [begun, stopped] = [new AbortController(), new AbortController()];
  await turn(begun.signal);
  begun.abort();
  const second = turn(stopped.signal);
  const third = turn();
  stopped.abort(new Error('stopped'));
  await expect(second).rejects.toThrow('stopped');
  await expect(turn(stopped.signal)).rejects.toThrow('stopped');
  let isThird = false;
  void third.then(() => (isThird = true));
  await vi.advanceTimersByTimeAsync(999);
  expect(isThird).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  expect(isThird).toBe(true);
});
