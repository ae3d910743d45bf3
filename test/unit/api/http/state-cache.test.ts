import { describe, expect, it } from 'vitest';

import { createStateCache } from '../../../../api/http/state-cache.ts';

/** Every key has the state and the key as its value, but `none`; notes what is asked for. */
function source() {
  const asked: string[][] = [];
  const readAt = (state: string) => async (keys: readonly string[]) => {
    asked.push([...keys]);
    return new Map(
      keys.flatMap((key) => (key === 'none' ? [] : [[key, { text: `${state} ${key}` }] as const])),
    );
  };
  return { asked, readAt };
}

type Value = { readonly text: string };
const texts = (found: ReadonlyMap<string, Value>) =>
  Object.fromEntries([...found].map(([key, { text }]) => [key, text]));

describe('a cache of what follows from the state', () => {
  it('reads each key once while the state is the same, also one without a value', async () => {
    const { asked, readAt } = source();
    const cache = createStateCache<string, Value>(() => 0);
    expect(texts(await cache.values('s1', ['a', 'none', 'a'], readAt('s1')))).toEqual({ a: 's1 a' });
    expect(texts(await cache.values('s1', ['c', 'none', 'd', 'a'], readAt('s1')))).toEqual({
      a: 's1 a',
      c: 's1 c',
      d: 's1 d',
    });
    expect(texts(await cache.values('s1', ['d', 'none'], readAt('s1')))).toEqual({ d: 's1 d' });
    expect(asked).toEqual([
      ['a', 'none'],
      ['c', 'd'],
    ]);
  });

  it('keeps zero', async () => {
    const cache = createStateCache<string, number>(() => 0);
    let reads = 0;
    const read = async () => new Map([['a', (reads += 1) - 1]]);
    await cache.values('s1', ['a'], read);
    expect(await cache.values('s1', ['a'], read)).toEqual(new Map([['a', 0]]));
    expect(reads).toBe(1);
  });

  it('reads anew in another state, and when the values are 10 s old', async () => {
    let now = 0;
    const { asked, readAt } = source();
    const cache = createStateCache<string, Value>(() => now);
    await cache.values('s1', ['a'], readAt('s1'));
    expect(texts(await cache.values('s2', ['a'], readAt('s2')))).toEqual({ a: 's2 a' });
    now = 9999;
    await cache.values('s2', ['a'], readAt('s2'));
    expect(asked).toHaveLength(2);
    now = 10_000;
    await cache.values('s2', ['a'], readAt('s2'));
    expect(asked).toHaveLength(3);
  });

  it('keeps a value of the state in which it was asked for, not of that in which it arrives', async () => {
    const { readAt } = source();
    const cache = createStateCache<string, Value>(() => 0);
    const arrival = Promise.withResolvers<ReadonlyMap<string, Value>>();
    const slow = cache.values('s1', ['a'], () => arrival.promise);
    await cache.values('s2', ['b'], readAt('s2'));
    arrival.resolve(new Map([['a', { text: 's1 a' }]]));
    expect(texts(await slow)).toEqual({ a: 's1 a' });
    expect(texts(await cache.values('s2', ['a'], readAt('s2')))).toEqual({ a: 's2 a' });
  });

  it('keeps nothing without a state, nor after a failure', async () => {
    const { asked, readAt } = source();
    const cache = createStateCache<string, Value>(() => 0);
    await cache.values(null, ['a'], readAt('none'));
    await cache.values(null, ['a'], readAt('none'));
    expect(asked).toHaveLength(2);
    await expect(cache.values('s1', ['a'], () => Promise.reject(new Error('away')))).rejects.toThrow('away');
    expect(texts(await cache.values('s1', ['a'], readAt('s1')))).toEqual({ a: 's1 a' });
  });
});
