import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { createSource } from '../../../../pipeline/ingest/prefetch.ts';

const BLOCK_BYTES = 100;

/** A source whose fetches the test answers one by one. */
function sourceOf(limits: { concurrency?: number; maxBytes?: number; maxBlocks?: number } = {}) {
  const waiting = new Map<number, { answer(bytes?: number): void; fail(): void }>();
  let most = 0;
  const source = createSource<{ height: number; bytes: number }>({
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
            reject(new Error(`no ${height}`));
          },
        });
        most = Math.max(most, waiting.size);
      }),
  });
  const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  return { source, waiting, settle, most: () => most };
}
const all = { atLeast: 1, blocks: 100, bytes: 1_000_000 };
const heights = (items: { height: number }[]): number[] => items.map(({ height }) => height);

describe('a source', () => {
  test('hands out blocks in order whatever order they arrive in, again until they are consumed', async () => {
    const { source, waiting, settle } = sourceOf();
    source.setEnd(20);
    await settle();
    expect([...waiting.keys()]).toEqual([10, 11, 12, 13]);
    for (const height of [13, 11, 10]) waiting.get(height)?.answer();
    await settle();
    expect(heights(await source.peek(all))).toEqual([10, 11]);
    expect(heights(await source.peek(all))).toEqual([10, 11]);
    source.consume(2);
    waiting.get(12)?.answer();
    expect(heights(await source.peek(all))).toEqual([12, 13]);
  });

  test('throws what a fetch threw when its turn comes, and fetches that one anew', async () => {
    const { source, waiting, settle } = sourceOf();
    source.setEnd(12);
    await settle();
    waiting.get(10)?.answer();
    waiting.get(11)?.fail();
    waiting.get(12)?.answer();
    await settle();
    expect(heights(await source.peek(all))).toEqual([10]);
    source.consume(1);
    await expect(source.peek(all)).rejects.toThrow('no 11');
    const again = source.peek(all);
    await settle();
    waiting.get(11)?.answer();
    expect(heights(await again)).toEqual([11, 12]);
  });

  test('forgets what was asked before a restart, also what is still to arrive', async () => {
    const { source, waiting, settle } = sourceOf({ concurrency: 2 });
    source.setEnd(30);
    await settle();
    const stale = waiting.get(10);
    source.restart(5);
    stale?.answer(1);
    await settle();
    waiting.get(11)?.answer(1);
    await settle();
    waiting.get(5)?.answer();
    expect(heights(await source.peek(all))).toEqual([5]);
  });

  test('holds no more than its bytes, but always lets one block through', async () => {
    const { source, waiting, settle } = sourceOf({ maxBytes: 250_000, concurrency: 10 });
    source.setEnd(100);
    await settle();
    // The first guess is 100 kB a block.
    expect(waiting.size).toBe(2);
    for (const one of waiting.values()) one.answer(900_000);
    await settle();
    expect(waiting.size).toBe(0);
    expect(heights(await source.peek({ ...all, bytes: 1 }))).toEqual([10]);
    source.consume(2);
    await settle();
    expect(waiting.size).toBe(1);
  });

  test('asks for the least that is wanted though there is no room', async () => {
    const { source, waiting, settle } = sourceOf({ maxBytes: 1 });
    source.setEnd(100);
    const two = source.peek({ ...all, atLeast: 2 });
    await settle();
    waiting.get(10)?.answer();
    await settle();
    waiting.get(11)?.answer();
    expect(heights(await two)).toEqual([10, 11]);
  });
});

test('any order of arrivals, failures and restarts ends with every block once, in order, within the limits', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(1000), { minLength: 50, maxLength: 400 }), async (dice) => {
      const { source, waiting, settle, most } = sourceOf({ concurrency: 5, maxBlocks: 12 });
      const got: number[] = [];
      let turn = 0;
      source.setEnd(40);
      while (got.length < 31 && turn < 3000) {
        const die = dice[turn % dice.length] ?? 0;
        turn += 1;
        const pending = [...waiting.values()];
        const one = pending[die % Math.max(1, pending.length)];
        if (die % 11 === 0) one?.fail();
        else one?.answer();
        await settle();
        if (die % 37 === 0) source.restart(10 + got.length);
        const ready = await source.peek({ ...all, atLeast: 0 }).catch(() => []);
        got.push(...heights(ready));
        source.consume(ready.length);
        await settle();
        if (waiting.size === 0 && got.length < 31) {
          const looking = source.peek(all).catch(() => {});
          await settle();
          for (const other of waiting.values()) other.answer();
          await looking;
        }
      }
      expect(got).toEqual(Array.from({ length: 31 }, (_, index) => 10 + index));
      // A restart leaves what was in flight to arrive.
      expect(most()).toBeLessThanOrEqual(5 + 1);
    }),
    { numRuns: 30 },
  );
});
