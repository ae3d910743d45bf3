import fc from 'fast-check';
import { expect, it } from 'vitest';

import { retryPauseMs } from '../../../../pipeline/observe/retry.ts';

it('doubles from a second to five minutes', () => {
  const pauses = Array.from({ length: 12 }, (_, index) => retryPauseMs(index + 1, 0));
  expect(pauses).toEqual([
    1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000, 300_000,
  ]);
  // A node that was away for a day: no overflow, no end.
  expect(retryPauseMs(5000, 0)).toBe(300_000);
});

it('grows whatever chance takes off, and takes off no more than a fifth', () => {
  const chance = fc.double({ min: 0, max: 1, noNaN: true });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 8 }), chance, chance, (failures, now, then) => {
      expect(retryPauseMs(failures + 1, then)).toBeGreaterThan(retryPauseMs(failures, now));
      expect(retryPauseMs(failures, now)).toBeGreaterThanOrEqual(0.8 * retryPauseMs(failures, 0));
    }),
  );
});
