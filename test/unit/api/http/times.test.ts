import fc from 'fast-check';
import { expect, test } from 'vitest';

import { iso } from '../../../../api/http/times.ts';

const HOUR_MS = 3_600_000;
/** The last hour of a `Date`, in both directions. */
const LAST_HOUR = 8.64e15 / HOUR_MS;

test('writes any time, whole hours in particular, as Date does', () => {
  const hours = fc.integer({ min: -LAST_HOUR, max: LAST_HOUR }).map((hour) => hour * HOUR_MS);
  const near = fc.integer({ min: -100, max: 100 }).map((hour) => hour * HOUR_MS);
  const times = fc.integer({ min: -8.64e15, max: 8.64e15 });
  fc.assert(
    fc.property(fc.array(fc.oneof(hours, near, times), { maxLength: 20 }), (several) => {
      for (const time of several) expect(iso(time)).toBe(new Date(time).toISOString());
    }),
  );
});

test.each([Number.NaN, Number.POSITIVE_INFINITY])('throws on %s', (time) => {
  expect(() => iso(time)).toThrow(RangeError);
});
