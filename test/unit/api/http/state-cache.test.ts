import { describe, expect, it } from 'vitest';

import { createStateCache } from '../../../../api/http/state-cache.ts';

/** Reads the state and the key as the value; notes what it was asked for. */
function source() {
  const asked: string[][] = [];
  const readAt = (state: string) => async (keys: readonly string[]) => {
    asked.push([...keys]);
    return keys.map((key) => `${state} ${key}`);
  };
  return { asked, readAt };
}

describe('a cache of what follows from the state', () => {
  it('reads each key once while the state is the same, and returns the values in the order of the keys', async () => {
    const { asked, readAt } = source();
    const cache = createStateCache<string, string>(
      (key) => key,
      () => 0,
    );
    expect(await cache.values('s1', ['a', 'b'], readAt('s1'))).toEqual(['s1 a', 's1 b']);
    expect(await cache.values('s1', ['c', 'b', 'd', 'a'], readAt('s1'))).toEqual([
      's1 c',
      's1 b',
      's1 d',
      's1 a',
    ]);
    expect(await cache.values('s1', ['d', 'c'], readAt('s1'))).toEqual(['s1 d', 's1 c']);
    expect(asked).toEqual([
      ['a', 'b'],
      ['c', 'd'],
    ]);
  });

  it('reads anew in another state, and when the values are 10 s old', async () => {
    let now = 0;
    const { asked, readAt } = source();
    const cache = createStateCache<string, string>(
      (key) => key,
      () => now,
    );
    await cache.values('s1', ['a'], readAt('s1'));
    expect(await cache.values('s2', ['a'], readAt('s2'))).toEqual(['s2 a']);
    now = 9999;
    await cache.values('s2', ['a'], readAt('s2'));
    expect(asked).toHaveLength(2);
    now = 10_000;
    await cache.values('s2', ['a'], readAt('s2'));
    expect(asked).toHaveLength(3);
  });

  it('keeps a value of the state in which it was asked for, not of that in which it arrives', async () => {
    const { readAt } = source();
    const cache = createStateCache<string, string>(
      (key) => key,
      () => 0,
    );
    const arrival = Promise.withResolvers<readonly string[]>();
    const slow = cache.values('s1', ['a'], () => arrival.promise);
    await cache.values('s2', ['b'], readAt('s2'));
    arrival.resolve(['s1 a']);
    expect(await slow).toEqual(['s1 a']);
    expect(await cache.values('s2', ['a'], readAt('s2'))).toEqual(['s2 a']);
  });

  it('keeps nothing without a state, nor after a failure, and keeps that there is no value', async () => {
    const { asked, readAt } = source();
    const cache = createStateCache<string, string | undefined>(
      (key) => key,
      () => 0,
    );
    await cache.values(null, ['a'], readAt('none'));
    await cache.values(null, ['a'], readAt('none'));
    expect(asked).toHaveLength(2);
    await expect(cache.values('s1', ['a'], () => Promise.reject(new Error('away')))).rejects.toThrow('away');
    expect(await cache.values('s1', ['a'], async () => [undefined])).toEqual([undefined]);
    expect(await cache.values('s1', ['a'], readAt('s1'))).toEqual([undefined]);
  });

  it('refuses fewer values than keys', async () => {
    const cache = createStateCache<string, string>(
      (key) => key,
      () => 0,
    );
    await expect(cache.values('s1', ['a', 'b'], async () => ['one'])).rejects.toThrow('no value');
  });
});
