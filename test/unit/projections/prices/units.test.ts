import fc from 'fast-check';
import { expect, test } from 'vitest';

import { meanOf, unitsOf, usdOf } from '../../../../projections/prices/units.ts';

/** Whole digits and decimals as a price may have them, without needless zeros. */
const price = fc
  .tuple(fc.bigInt({ min: 0n, max: 10n ** 15n - 1n }), fc.bigInt({ min: 0n, max: 10n ** 41n - 1n }))
  .map(([whole, rest]) => `${whole}.${rest.toString().padStart(41, '0')}`.replace(/\.?0+$/, ''))
  .map((text) => (text === '' ? '0' : text));

test('a price is a whole number of units, and is converted back unchanged', () => {
  fc.assert(
    fc.property(price, (text) => {
      expect(usdOf(unitsOf(text))).toBe(text);
      const [whole = '', rest = ''] = text.split('.');
      expect(unitsOf(text)).toBe(BigInt(whole) * 10n ** 41n + BigInt(rest.padEnd(41, '0') || 0));
    }),
  );
  expect(['10', '0.1', '1500', '0.00', '1.50'].map((text) => usdOf(unitsOf(text)))).toEqual([
    '10',
    '0.1',
    '1500',
    '0',
    '1.5',
  ]);
  expect(() => unitsOf(`0.${'0'.repeat(41)}1`)).toThrow('41 decimals');
});

test('a mean is exact to twenty digits', () => {
  const scale = 10n ** 41n;
  fc.assert(
    fc.property(fc.array(price, { minLength: 1, maxLength: 30 }), (prices) => {
      const points = BigInt(prices.length);
      const total = prices.map(unitsOf).reduce((sum, one) => sum + one, 0n);
      const mean = unitsOf(meanOf(total, points));
      // Half of the last of twenty digits, at most, lies between: twice the difference is no more than that digit.
      const digits = (total / points).toString().length;
      const last = digits > 20 ? 10n ** BigInt(digits - 20) : 1n;
      const difference = 2n * (mean * points - total);
      expect(difference <= last * points && -difference <= last * points).toBe(true);
      if (total % points === 0n) expect(mean).toBe(total / points);
    }),
  );
  expect(meanOf(unitsOf('1') + unitsOf('2'), 2n)).toBe('1.5');
  expect(meanOf(4n * scale, 3n)).toBe('1.3333333333333333333');
  expect(meanOf(2000n * scale, 3n)).toBe('666.66666666666666667');
  expect(meanOf(2n, 3n)).toBe(`0.${'0'.repeat(40)}1`);
});
