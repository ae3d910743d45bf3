import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { paceCalls } from '../../../../pipeline/observe/calls.ts';
import { toFelt } from '../../../../schemas/felt.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const request = { contract: toFelt(1n), selector: toFelt(2n), calldata: [] };
function paced() {
  const call = vi.fn<() => Promise<never[]>>(async () => []);
  const node = paceCalls({ call }, { callsPerSecond: 2, concurrency: 8 });
  const ask = (): Promise<unknown> => node.call(request, 'latest');
  return { call, ask };
}

it('makes as many calls as are allowed within any second', async () => {
  const { call, ask } = paced();
  const all = [1, 2, 3, 4, 5].map(() => ask());
  await vi.advanceTimersByTimeAsync(999);
  expect(call).toHaveBeenCalledTimes(2);
  await vi.advanceTimersByTimeAsync(1);
  expect(call).toHaveBeenCalledTimes(4);
  await vi.advanceTimersByTimeAsync(1000);
  await Promise.all(all);
});

it('makes a call without delay after the clock was set back', async () => {
  const { call, ask } = paced();
  await Promise.all([ask(), ask()]);
  await vi.advanceTimersByTimeAsync(3000);
  vi.setSystemTime(Date.now() - 3_600_000);
  void ask();
  await vi.advanceTimersByTimeAsync(0);
  expect(call).toHaveBeenCalledTimes(3);
});
