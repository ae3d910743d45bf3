import { expect, test } from 'vitest';

import { Releasers } from '../../../infra/lifecycle.ts';

test('resources that do not need each other are released at the same time, in the place of their group', async () => {
  const events: string[] = [];
  const failed: string[] = [];
  const releasers = new Releasers((name) => failed.push(name));
  releasers.push('pool', () => void events.push('pool'));
  const group = releasers.together('consumers');
  releasers.push('server', () => void events.push('server'));
  const second = Promise.withResolvers<void>();
  group.push('first', async () => {
    events.push('first begins');
    await second.promise; // never resolves if the second one waits for the first
    throw new Error('broken');
  });
  group.push('second', () => {
    events.push('second');
    second.resolve();
  });
  await releasers.releaseAll();
  expect(events).toEqual(['server', 'first begins', 'second', 'pool']);
  expect(failed).toEqual(['first']);
});
