import { expect, it } from 'vitest';

import { createLruCache } from '../../../infra/lru.ts';

it('evicts the least recently used entry at the limit', () => {
  const cache = createLruCache<string, number>(2);
  cache.set('a', 1);
  cache.set('b', 2);
  cache.get('a');
  cache.set('c', 3);
  expect([cache.get('a'), cache.get('b'), cache.get('c')]).toEqual([1, undefined, 3]);
  cache.set('a', 4);
  expect([cache.get('a'), cache.get('c')]).toEqual([4, 3]);
});

it('counts an entry that is set again as used', () => {
  const cache = createLruCache<string, number>(2);
  cache.set('a', 1);
  cache.set('b', 2);
  cache.set('a', 3);
  cache.set('c', 4);
  expect([cache.get('a'), cache.get('b'), cache.get('c')]).toEqual([3, undefined, 4]);
});
