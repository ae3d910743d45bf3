import { describe, expect, it } from 'vitest';

import { inBatches } from '../../../infra/batches.ts';

const never = (): boolean => false;

describe('inBatches', () => {
  it('passes on together what comes in one turn, and what comes during a batch after it', async () => {
    const batches: string[][] = [];
    let end = (): void => {};
    const pass = inBatches<string, string>(
      async (batch) => {
        batches.push([...batch]);
        if (batches.length === 1) await new Promise<void>((resolve) => (end = resolve));
        return batch.map((item) => item.toUpperCase());
      },
      { most: 2, failsAll: never },
    );
    const first = [pass('a'), pass('b'), pass('c')];
    await new Promise((resolve) => setImmediate(resolve));
    const second = pass('d');
    expect(batches).toEqual([['a', 'b']]);
    end();
    expect(await Promise.all([...first, second])).toEqual(['A', 'B', 'C', 'D']);
    expect(batches).toEqual([
      ['a', 'b'],
      ['c', 'd'],
    ]);
  });

  it('lets an item that fails fail alone, and goes on', async () => {
    const pass = inBatches<number, number>(
      async (batch) => {
        if (batch.includes(2)) throw new RangeError('2');
        return batch.map((item) => 10 * item);
      },
      { most: 3, failsAll: never },
    );
    const results = await Promise.allSettled([1, 2, 3, 4].map(pass));
    expect(results.map((one) => (one.status === 'fulfilled' ? one.value : String(one.reason)))).toEqual([
      10,
      'RangeError: 2',
      30,
      40,
    ]);
  });

  it('fails a whole batch, without repeating it, on an error that is not that of an item', async () => {
    let calls = 0;
    const pass = inBatches<number, number>(
      async () => {
        calls += 1;
        throw new Error('away');
      },
      { most: 3, failsAll: () => true },
    );
    const results = await Promise.allSettled([1, 2, 3].map(pass));
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    expect(calls).toBe(1);
  });
});
