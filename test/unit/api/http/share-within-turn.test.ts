import { setImmediate as turn } from 'node:timers/promises';

import { expect, test, vi } from 'vitest';

import { shareWithinTurn } from '../../../../api/http/share-within-turn.ts';

test('runs once for the same arguments within a turn, after all have asked', async () => {
  let stored = 'old';
  const work = vi.fn(async (of: string, key: string) => `${of} ${key} ${stored}`);
  const read = shareWithinTurn(work);
  const first = read('a', 'b');
  const other = read('a b', '');
  // As a continuation of the same turn.
  const second = Promise.resolve().then(async () => await read('a', 'b'));
  stored = 'new';
  expect(await Promise.all([first, second, other])).toEqual(['a b new', 'a b new', 'a b  new']);
  expect(work).toHaveBeenCalledTimes(2);
});

test('never answers a call with a read that began before it', async () => {
  const answers: ((value: number) => void)[] = [];
  const read = shareWithinTurn(async () => await new Promise<number>((resolve) => answers.push(resolve)));
  const early = read();
  await turn();
  expect(answers).toHaveLength(1);
  const late = read();
  await turn();
  expect(answers).toHaveLength(2);
  answers[1]?.(2);
  expect(await late).toBe(2);
  answers[0]?.(1);
  expect(await early).toBe(1);
});

test('fails for all who share it, and runs again for the next', async () => {
  let runs = 0;
  const read = shareWithinTurn(async () => {
    runs += 1;
    if (runs === 1) throw new Error('away');
    return runs;
  });
  const shared = await Promise.allSettled([read(), read()]);
  expect(shared.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(await read()).toBe(2);
});
