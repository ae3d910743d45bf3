import { expect, it } from 'vitest';

import { createAnswerCache } from '../../../../api/http/answer-cache.ts';

const answer = (length: number): Buffer => Buffer.alloc(length, 'x');

it('evicts the oldest answers beyond its size', () => {
  const cache = createAnswerCache(() => 0, { maxBytes: 100, maxAgeMs: 10 });
  cache.set('a', answer(40));
  cache.set('b', answer(40));
  expect(cache.get('a')).toEqual(answer(40));
  cache.set('c', answer(40));
  expect([cache.get('a'), cache.get('b')?.length, cache.get('c')?.length]).toEqual([undefined, 40, 40]);
  // Setting a key again counts its bytes once.
  cache.set('c', answer(60));
  expect([cache.get('b')?.length, cache.get('c')?.length]).toEqual([40, 60]);
  cache.set('d', answer(101));
  expect(['b', 'c', 'd'].map((key) => cache.get(key))).toEqual([undefined, undefined, undefined]);
  cache.set('e', answer(100));
  expect(cache.get('e')?.length).toBe(100);
});

it('drops an answer at its maximum age', () => {
  let now = 0;
  const cache = createAnswerCache(() => now, { maxBytes: 100, maxAgeMs: 10 });
  cache.set('a', answer(60));
  now = 9;
  expect(cache.get('a')).toBeDefined();
  now = 10;
  expect(cache.get('a')).toBeUndefined();
  cache.set('b', answer(60));
  expect(cache.get('b')).toBeDefined();
});
