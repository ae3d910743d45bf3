import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { Prefetch } from '../../../../pipeline/ingest/prefetch.ts';

const BLOCK_BYTES = 100;

/** A prefetch whose fetches the test answers one by one. */
function prefetchOf(limits: { concurrency?: number; maxBytes?: number; maxBlocks?: number } = {}) {
  const waiting = new Map<number, { answer(bytes?: number): void; fail(): void }>();
  let most = 0;
  const prefetch = new Prefetch<{ height: number; bytes: number }>({
    from: 10,
    concurrency: 4,
    maxBytes: 1_000_000_000,
    maxBlocks: 1000,
    ...limits,
    fetch: (height) =>
      new Promise((resolve, reject) => {
        waiting.set(height, {
          answer(bytes = BLOCK_BYTES) {
            waiting.delete(height);
            resolve({ height, bytes });
          },
          fail() {
            waiting.delete(height);
            reject(new Error(`fetch of ${height} failed`));
          },
        });
        most = Math.max(most, waiting.size);
      }),
  });
  const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  return { prefetch, waiting, settle, most: () => most };
}
const all = { atLeast: 1, blocks: 100, bytes: 1_000_000 };
const heights = (items: { height: number }[]): number[] => items.map(({ height }) => height);

describe('Prefetch', () => {
  test('returns blocks in order whatever order they arrive in, repeatedly until they are consumed', async () => {
    const { prefetch, waiting, settle } = prefetchOf();
    prefetch.setEnd(20);
    await settle();
    expect([...waiting.keys()]).toEqual([10, 11, 12, 13]);
    for (const height of [13, 11, 10]) waiting.get(height)?.answer();
    await settle();
    expect(heights(await prefetch.peek(all))).toEqual([10, 11]);
    expect(heights(await prefetch.peek(all))).toEqual([10, 11]);
    prefetch.consume(2);
    waiting.get(12)?.answer();
    expect(heights(await prefetch.peek(all))).toEqual([12, 13]);
  });

  test('throws the error of a failed fetch in its order, and fetches that block again', async () => {
    const { prefetch, waiting, settle } = prefetchOf();
    prefetch.setEnd(12);
    await settle();
    waiting.get(10)?.answer();
    waiting.get(11)?.fail();
    waiting.get(12)?.answer();
    await settle();
    expect(heights(await prefetch.peek(all))).toEqual([10]);
    prefetch.consume(1);
    await expect(prefetch.peek(all)).rejects.toThrow('fetch of 11 failed');
    const again = prefetch.peek(all);
    await settle();
    waiting.get(11)?.answer();
    expect(heights(await again)).toEqual([11, 12]);
  });

  test('fetches no consumed block again after a failure without room', async () => {
    const { prefetch, waiting, settle } = prefetchOf({ maxBlocks: 4 });
    prefetch.setEnd(40);
    await settle();
    waiting.get(10)?.fail();
    for (const height of [11, 12, 13]) waiting.get(height)?.answer();
    await settle();
    await expect(prefetch.peek(all)).rejects.toThrow('fetch of 10 failed');
    const again = prefetch.peek(all);
    await settle();
    waiting.get(10)?.answer();
    expect(heights(await again)).toEqual([10, 11, 12, 13]);
    prefetch.consume(4);
    await settle();
    expect([...waiting.keys()]).toEqual([14, 15, 16, 17]);
  });

  test('drops blocks requested before a restart, even those still in flight', async () => {
    const { prefetch, waiting, settle } = prefetchOf({ concurrency: 2 });
    prefetch.setEnd(30);
    await settle();
    const stale = waiting.get(10);
    prefetch.restart(5);
    stale?.answer(1);
    await settle();
    waiting.get(11)?.answer(1);
    await settle();
    waiting.get(5)?.answer();
    expect(heights(await prefetch.peek(all))).toEqual([5]);
  });

  test('buffers no more than maxBytes, but always admits one block', async () => {
    const { prefetch, waiting, settle } = prefetchOf({ maxBytes: 250_000, concurrency: 10 });
    prefetch.setEnd(100);
    await settle();
    // Assumed size of the first block: 100 kB.
    expect(waiting.size).toBe(2);
    for (const one of waiting.values()) one.answer(900_000);
    await settle();
    expect(waiting.size).toBe(0);
    expect(heights(await prefetch.peek({ ...all, bytes: 1 }))).toEqual([10]);
    prefetch.consume(2);
    await settle();
    expect(waiting.size).toBe(1);
  });

  test('fetches the required minimum even without room', async () => {
    const { prefetch, waiting, settle } = prefetchOf({ maxBytes: 1 });
    prefetch.setEnd(100);
    const two = prefetch.peek({ ...all, atLeast: 2 });
    await settle();
    waiting.get(10)?.answer();
    await settle();
    waiting.get(11)?.answer();
    expect(heights(await two)).toEqual([10, 11]);
  });
});

test('returns every block once, in order and within the limits, for any order of arrivals, failures and restarts', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(1000), { minLength: 50, maxLength: 400 }), async (dice) => {
      const { prefetch, waiting, settle, most } = prefetchOf({ concurrency: 5, maxBlocks: 12 });
      const got: number[] = [];
      let turn = 0;
      prefetch.setEnd(40);
      while (got.length < 31 && turn < 3000) {
        const die = dice[turn % dice.length] ?? 0;
        turn += 1;
        const pending = [...waiting.values()];
        const one = pending[die % Math.max(1, pending.length)];
        if (die % 11 === 0) one?.fail();
        else one?.answer();
        await settle();
        if (die % 37 === 0) prefetch.restart(10 + got.length);
        const ready = await prefetch.peek({ ...all, atLeast: 0 }).catch(() => []);
        got.push(...heights(ready));
        prefetch.consume(ready.length);
        await settle();
        if (waiting.size === 0 && got.length < 31) {
          const looking = prefetch.peek(all).catch(() => {});
          await settle();
          for (const other of waiting.values()) other.answer();
          await looking;
        }
      }
      expect(got).toEqual(Array.from({ length: 31 }, (_, index) => 10 + index));
      // After a restart, one fetch of before may still be in flight.
      expect(most()).toBeLessThanOrEqual(5 + 1);
    }),
    { numRuns: 30 },
  );
});
