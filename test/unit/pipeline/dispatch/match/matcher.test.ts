import fc from 'fast-check';
import { expect, it } from 'vitest';

import { mapInOrder } from '../../../../../pipeline/dispatch/match/matcher.ts';

it('yields results in order, with bounded concurrency, whichever finishes first', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 12 }),
      fc.integer({ min: 1, max: 5 }),
      async (turns, atOnce) => {
        let [running, most] = [0, 0];
        const found: (readonly [number, number])[] = [];
        const work = async (index: number): Promise<number> => {
          running += 1;
          most = Math.max(most, running);
          for (let turn = 0; turn < (turns[index] ?? 0); turn += 1) await Promise.resolve();
          running -= 1;
          return index * 10;
        };
        for await (const one of mapInOrder([...turns.keys()], atOnce, work)) found.push(one);
        expect(found).toEqual([...turns.keys()].map((index) => [index, index * 10]));
        expect(most).toBeLessThanOrEqual(atOnce);
        // All of those that may are begun before the first is waited for.
        if (turns.length >= atOnce && turns.slice(0, atOnce).every((turn) => turn > 0))
          expect(most).toBe(atOnce);
      },
    ),
  );
});

it('rejects at the first item that fails, and not for later ones', async () => {
  const work = async (item: number): Promise<number> => {
    if (item > 1) throw new Error(`${item} failed`);
    return await Promise.resolve(item);
  };
  const seen: number[] = [];
  const all = (async () => {
    for await (const [item] of mapInOrder([0, 1, 2, 3], 4, work)) seen.push(item);
  })();
  await expect(all).rejects.toThrow('2 failed');
  expect(seen).toEqual([0, 1]);
});
