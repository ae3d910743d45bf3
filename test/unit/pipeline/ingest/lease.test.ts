import fc from 'fast-check';
import { expect, test } from 'vitest';

import { createSeq } from '../../../../pipeline/ingest/lease.ts';

test('whatever is asked for, accepts come after reverts, and nothing is used above what is written down', async () => {
  const asks = fc.array(fc.constantFrom('accept', 'revert', 'lost'), { maxLength: 3000 });
  await fc.assert(
    fc.asyncProperty(asks, fc.integer({ min: 0, max: 5 }), async (steps, margin) => {
      let written = 100 + margin;
      let fail = false;
      const seq = createSeq({ seq: 100, seqCeiling: written }, async (ceiling) => {
        if (fail) throw new Error('away');
        written = Math.max(written, ceiling);
      });
      let lastRevert = 0;
      let highest = 100;
      for (const step of steps) {
        fail = step === 'lost';
        try {
          const given = step === 'accept' ? await seq.forAccept() : await seq.forRevert();
          expect(given).toBeLessThanOrEqual(written);
          if (step === 'accept') expect(given).toBeGreaterThan(lastRevert);
          else expect(given).toBeGreaterThan(highest);
          highest = Math.max(highest, given);
          if (step !== 'accept') lastRevert = given;
        } catch {
          expect(fail).toBe(true);
        }
      }
    }),
    { numRuns: 50 },
  );
});

test('a revert carries n, what is accepted after it n + 1, and that stands still', async () => {
  const seq = createSeq({ seq: 10, seqCeiling: 1000 }, async () => {});
  expect([await seq.forAccept(), await seq.forAccept()]).toEqual([10, 10]);
  expect(await seq.forRevert()).toBe(11);
  expect([await seq.forAccept(), await seq.forAccept()]).toEqual([12, 12]);
});
