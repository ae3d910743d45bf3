import { expect, it } from 'vitest';

import { createMemory } from '../../../infra/lru.ts';

it('forgets what was not used for longest', () => {
  const memory = createMemory<string, number>(2);
  memory.set('a', 1);
  memory.set('b', 2);
  memory.get('a');
  memory.set('c', 3);
  expect([memory.get('a'), memory.get('b'), memory.get('c')]).toEqual([1, undefined, 3]);
  memory.set('a', 4);
  expect([memory.get('a'), memory.get('c')]).toEqual([4, 3]);
});
