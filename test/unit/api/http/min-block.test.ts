import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { readCovering } from '../../../../api/http/min-block.ts';

/** Waiting for what is derived after a block is indexed. */

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Waits for height 7, which is covered `afterMs` from now; an error is returned. */
async function waitFor(afterMs: number, { leftMs = 2000, signal = new AbortController().signal } = {}) {
  const began = performance.now();
  let reads = 0;
  const waiting = readCovering(
    async () => {
      reads += 1;
      return performance.now() - began >= afterMs ? 7 : null;
    },
    (height) => height,
    { request: { minBlock: () => 7, signal, waitEndsAt: began + leftMs }, everyMs: 300 },
  ).catch((error: unknown) => error);
  await vi.runAllTimersAsync();
  return { found: await waiting, waitedMs: performance.now() - began, reads };
}

const behind = { status: 503, code: 'behind', headers: { 'Retry-After': '1' } };

test('answers as soon as the height is covered, at the latest when the wait ends', async () => {
  expect(await waitFor(0)).toEqual({ found: 7, waitedMs: 0, reads: 1 });
  expect(await waitFor(500)).toEqual({ found: 7, waitedMs: 600, reads: 3 });
  expect(await waitFor(2000)).toMatchObject({ found: 7, waitedMs: 2000 });
});

test('rejects with 503 and Retry-After when the wait ends, of which the index may have taken some', async () => {
  expect(await waitFor(2001)).toMatchObject({ found: behind, waitedMs: 2000 });
  expect(await waitFor(1000, { leftMs: 700 })).toMatchObject({ found: behind, waitedMs: 700 });
  expect(await waitFor(0, { leftMs: -1 })).toMatchObject({ found: 7, reads: 1 });
});

test('does not wait for a client that has left', async () => {
  const left = new AbortController();
  setTimeout(() => left.abort(), 400);
  expect(await waitFor(1000, { signal: left.signal })).toMatchObject({ found: behind, waitedMs: 400 });
});
