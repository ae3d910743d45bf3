import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { formatAmount, parseAmount } from '../../../client/src/amounts.ts';

const decimals = fc.integer({ min: 0, max: 77 });

describe('amounts', () => {
  it.each([
    [1_500_000n, 6, '1.5'],
    [0n, 18, '0'],
    [1n, 18, '0.000000000000000001'],
    [-25n, 1, '-2.5'],
    [7n, 0, '7'],
  ])('%s with %s decimals is %s', (amount, places, text) => {
    expect(formatAmount(amount, places)).toBe(text);
    expect(parseAmount(text, places)).toBe(amount);
  });

  it('parse to what was formatted', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(1n << 256n), max: 1n << 256n }), decimals, (amount, places) => {
        expect(parseAmount(formatAmount(amount, places), places)).toBe(amount);
      }),
    );
  });

  it.each(['', '.5', '1.', '1e3', '0x1', '1.0000001', ' 1', '1,5'])('refuse %j', (text) => {
    expect(() => parseAmount(text, 6)).toThrow(RangeError);
  });
});
