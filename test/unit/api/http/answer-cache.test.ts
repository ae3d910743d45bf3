import { expect, it } from 'vitest';

import { keepAnswers } from '../../../../api/http/answer-cache.ts';

const answer = (length: number): Buffer => Buffer.alloc(length, 'x');

it('keeps so many bytes, the newest of them', () => {
  const kept = keepAnswers(() => 0, { maxBytes: 100, maxMs: 10 });
  kept.keep('a', answer(40));
  kept.keep('b', answer(40));
  expect(kept.get('a')).toEqual(answer(40));
  kept.keep('c', answer(40));
  expect([kept.get('a'), kept.get('b')?.length, kept.get('c')?.length]).toEqual([undefined, 40, 40]);
  // One that is kept again counts once.
  kept.keep('c', answer(60));
  expect([kept.get('b')?.length, kept.get('c')?.length]).toEqual([40, 60]);
  kept.keep('d', answer(101));
  expect(['b', 'c', 'd'].map((key) => kept.get(key))).toEqual([undefined, undefined, undefined]);
  kept.keep('e', answer(100));
  expect(kept.get('e')?.length).toBe(100);
});

it('keeps nothing for longer than it may', () => {
  let now = 0;
  const kept = keepAnswers(() => now, { maxBytes: 100, maxMs: 10 });
  kept.keep('a', answer(60));
  now = 9;
  expect(kept.get('a')).toBeDefined();
  now = 10;
  expect(kept.get('a')).toBeUndefined();
  kept.keep('b', answer(60));
  expect(kept.get('b')).toBeDefined();
});
