import { expect, it } from 'vitest';

import { createAnswerCache } from '../../../../api/http/answer-cache.ts';

const answer = (length: number): Buffer => Buffer.alloc(length, 'x');

it('evicts the oldest answers beyond its size', () => {
  const cache = createAnswerCache(() => 0, { maxBytes: 102, maxAgeMs: 10 });
  cache.set('a', answer(40));
  cache.set('b', answer(40));
  expect(cache.get('a')).toEqual(answer(40));
  cache.set('c', answer(40));
  expect([cache.get('a'), cache.get('b')?.length, cache.get('c')?.length]).toEqual([undefined, 40, 40]);
  // Setting a key again counts its bytes once.
  cache.set('c', answer(60));
  expect([cache.get('b')?.length, cache.get('c')?.length]).toEqual([40, 60]);
  cache.set('d', answer(102));
  expect(['b', 'c', 'd'].map((key) => cache.get(key))).toEqual([undefined, undefined, undefined]);
  cache.set('e', answer(101));
  expect(cache.get('e')?.length).toBe(101);
});

it('counts the keys, which may be longer than their answers', () => {
  const cache = createAnswerCache(() => 0, { maxBytes: 100, maxAgeMs: 10 });
  cache.set('a'.repeat(40), answer(2));
  cache.set('b'.repeat(40), answer(2));
  cache.set('c'.repeat(40), answer(2));
  expect(['a', 'b', 'c'].map((key) => cache.get(key.repeat(40))?.length)).toEqual([undefined, 2, 2]);
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
