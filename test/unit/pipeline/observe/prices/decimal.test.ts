import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import {
  JsonNumber,
  factorBetween,
  parseJsonExactly,
  plainDecimal,
  positiveDecimal,
} from '../../../../../pipeline/observe/prices/decimal.ts';
import { pricesMessage } from '../../../../../schemas/messages/prices.ts';

/** Value × 10^60 of a decimal text, computed independently of the code. */
function scaled(text: string): bigint {
  const [mantissa = '', exponent = '0'] = text.toLowerCase().split('e');
  const [whole = '', fraction = ''] = mantissa.split('.');
  const shift = 60 + Number(exponent) - fraction.length;
  const digits = BigInt(whole + fraction);
  if (shift >= 0) return digits * 10n ** BigInt(shift);
  const divisor = 10n ** BigInt(-shift);
  if (digits % divisor !== 0n) throw new RangeError('finer than 10^-60');
  return digits / divisor;
}

const numberText = fc
  .tuple(
    fc.bigInt({ min: 0n, max: 10n ** 17n }),
    fc.option(fc.stringMatching(/^[0-9]{1,20}$/), { nil: null }),
    fc.option(fc.integer({ min: -20, max: 10 }), { nil: null }),
    fc.constantFrom('e', 'E', 'e+'),
  )
  .map(([whole, fraction, exponent, mark]) => {
    const sign = mark === 'e+' && (exponent ?? 0) < 0 ? 'e' : mark;
    return `${whole}${fraction === null ? '' : `.${fraction}`}${exponent === null ? '' : sign + exponent}`;
  });

describe('plainDecimal', () => {
  it('keeps every digit and matches the schema of messages', () => {
    const price = pricesMessage.options[0].shape.price;
    fc.assert(
      fc.property(numberText, (text) => {
        const plain = plainDecimal(text);
        if (plain === null) {
          // Refused for its size only.
          const [whole = '', fraction = ''] = [scaled(text) / 10n ** 60n, scaled(text) % 10n ** 60n].map(
            String,
          );
          const places = fraction === '0' ? 0 : fraction.padStart(60, '0').replace(/0+$/, '').length;
          expect(whole.length > 15 || places > 41).toBe(true);
          return;
        }
        expect(price.safeParse(plain).success).toBe(true);
        expect(scaled(plain)).toBe(scaled(text));
        expect(plain).not.toMatch(/\.[0-9]*0$/);
      }),
      { numRuns: 2000 },
    );
  });

  it('accepts every positive double within the limits as JavaScript writes it', () => {
    fc.assert(
      fc.property(fc.double({ min: 1e-20, max: 9e14, noNaN: true }), (value) => {
        expect(Number(positiveDecimal(JSON.stringify(value)))).toBe(value);
      }),
      { numRuns: 2000 },
    );
  });

  it.each([
    ['1', '1'],
    ['0.10', '0.1'],
    ['3e2', '300'],
    ['1.5E-7', '0.00000015'],
    ['120.00e-1', '12'],
    ['123456789012345.123456789012345678901234567890', '123456789012345.12345678901234567890123456789'],
    ['0.000', '0'],
    ['-0', '0'],
  ])('writes %s as %s', (text, plain) => {
    expect(plainDecimal(text)).toBe(plain);
  });

  it.each([
    '',
    '-1',
    '+1',
    '.5',
    '5.',
    '1e',
    'NaN',
    'Infinity',
    '0x10',
    '1_000',
    ' 1',
    '1e999',
    '1e-99',
    '1e15',
  ])('refuses %j', (text) => {
    expect(plainDecimal(text)).toBeNull();
  });

  it('refuses zero as a positive decimal', () => {
    expect(positiveDecimal('0')).toBeNull();
    expect(positiveDecimal('0e5')).toBeNull();
  });
});

describe('parseJsonExactly', () => {
  it('keeps every number as written, and parses the rest as JSON.parse', () => {
    fc.assert(
      fc.property(numberText, fc.string(), fc.boolean(), (text, other, flag) => {
        const json = `{"a": [${text}, ${JSON.stringify(other)}], "b": {"c": ${flag}, "d": ${text}}, "e": null}`;
        const number = new JsonNumber(text);
        expect(parseJsonExactly(json)).toEqual({ a: [number, other], b: { c: flag, d: number }, e: null });
      }),
    );
  });

  it('keeps digits beyond the precision of a double', () => {
    expect(parseJsonExactly('[0.1234567890123456789012]')).toEqual([
      new JsonNumber('0.1234567890123456789012'),
    ]);
  });
});

it('factorBetween is the same in both directions', () => {
  expect(factorBetween('2', '4')).toBe(2);
  expect(factorBetween('4', '2')).toBe(2);
  expect(factorBetween('0.00000001', '0.00001')).toBeCloseTo(1000, 6);
});
