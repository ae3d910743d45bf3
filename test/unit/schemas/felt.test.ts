import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import {
  ETH_TOKEN,
  FELT_PRIME,
  STRK_TOKEN,
  isFelt,
  joinU256,
  parseFelt,
  toFelt,
} from '../../../schemas/felt.ts';

const zeros = (count: number) => '0'.repeat(count);

/** 2^251 + 17·2^192 + 1 in hex. */
const PRIME = `0x0800000000000011${zeros(47)}1`;
const LAST = `0x0800000000000011${zeros(48)}`;

test('FELT_PRIME is the prime of the field', () => {
  expect(FELT_PRIME).toBe(BigInt(PRIME));
});

describe('parseFelt', () => {
  test.each([
    ['unpadded', '0x1', `0x${zeros(63)}1`],
    ['zero', '0x0', `0x${zeros(64)}`],
    ['zero, padded', `0x${zeros(64)}`, `0x${zeros(64)}`],
    ['upper case digits', '0xABCDEF', `0x${zeros(58)}abcdef`],
    ['0X', '0Xab', `0x${zeros(62)}ab`],
    ['63 digits', `0x${'1'.repeat(63)}`, `0x0${'1'.repeat(63)}`],
    ['64 digits', `0x0${'7'.repeat(63)}`, `0x0${'7'.repeat(63)}`],
    ['2^251, above the first bound that a regular expression sees', `0x08${zeros(62)}`, `0x08${zeros(62)}`],
    ['the last felt', LAST, LAST],
    ['the last felt, upper case and unpadded', `0X${LAST.slice(3).toUpperCase()}`, LAST],
  ])('%s', (_name, text, felt) => {
    expect(parseFelt(text)).toBe(felt);
  });

  test.each([
    ['the prime', PRIME],
    ['the prime, unpadded', `0x${PRIME.slice(3)}`],
    ['more than the prime in the lowest digit', `${PRIME.slice(0, -1)}2`],
    ['more than the prime in a high digit', `0x09${zeros(62)}`],
    ['2^252', `0x1${zeros(63)}`],
    ['2^256 - 1', `0x${'f'.repeat(64)}`],
    ['too long, though small', `0x${zeros(64)}1`],
    ['empty', ''],
    ['prefix only', '0x'],
    ['no prefix', 'ab'],
    ['decimal', '12'],
    ['half a prefix', 'x1'],
    ['negative', '-0x1'],
    ['space before', ' 0x1'],
    ['space after', '0x1 '],
    ['line end after', '0x1\n'],
    ['space within', '0x1 2'],
    ['not hex', '0xg'],
    ['underscore', '0x1_0'],
    ['digits of another script', '0x١'],
  ])('refuses: %s', (_name, text) => {
    expect(parseFelt(text)).toBeNull();
  });
});

describe('isFelt', () => {
  test.each([
    [`0x${zeros(64)}`, true],
    [LAST, true],
    [PRIME, false],
    ['0x1', false],
    [`0X${zeros(64)}`, false],
    [`0x${zeros(63)}A`, false],
    [`0x${zeros(64)}\n`, false],
    [zeros(66), false],
  ])('%j: %s', (text, expected) => {
    expect(isFelt(text)).toBe(expected);
  });
});

test('isFelt and parseFelt agree with patterns for a felt with any other characters in it', () => {
  const other = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 3 }),
    // Those whose lowest byte is a digit's, those of two bytes each, and halves of pairs.
    fc.constantFrom('\u0130', '\u3061', '\u00e9', '\ud83d', '\ude00', 'A', '`', 'g', '/', ':', '\0'),
  );
  fc.assert(
    fc.property(
      fc.bigInt({ min: 0n, max: BigInt(LAST) }),
      fc.nat(66),
      other,
      fc.boolean(),
      (value, at, text, isCut) => {
        const felt = toFelt(value);
        const changed = felt.slice(0, at) + text + felt.slice(at + (isCut ? text.length : 0));
        const isCanonical = /^0x0[0-9a-f]{63}$/.test(changed) && BigInt(changed) < FELT_PRIME;
        expect(isFelt(changed)).toBe(isCanonical);
        const isLoose = /^0[xX][0-9a-fA-F]{1,64}$/.test(changed) && BigInt(changed) < FELT_PRIME;
        expect(parseFelt(changed)).toBe(isLoose ? toFelt(BigInt(changed)) : null);
      },
    ),
    { numRuns: 2000 },
  );
});

describe('toFelt', () => {
  test('agrees with parseFelt for any value of the field', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: BigInt(LAST) }), (value) => {
        const felt = toFelt(value);
        expect(felt).toHaveLength(66);
        expect(isFelt(felt)).toBe(true);
        expect(BigInt(felt)).toBe(value);
        expect(parseFelt(`0x${value.toString(16)}`)).toBe(felt);
      }),
    );
  });

  test.each([-1n, BigInt(PRIME), 1n << 256n])('throws on %s', (value) => {
    expect(() => toFelt(value)).toThrow(RangeError);
  });

  test('fee tokens have their published addresses', () => {
    expect(ETH_TOKEN).toBe('0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7');
    expect(STRK_TOKEN).toBe('0x04718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d');
  });
});

describe('joinU256', () => {
  const MAX_HALF = 340282366920938463463374607431768211455n;

  test.each([
    ['nothing', 0n, 0n, 0n],
    ['low only', 1n, 0n, 1n],
    ['high only', 0n, 1n, 340282366920938463463374607431768211456n],
    ['the low half full', MAX_HALF, 0n, MAX_HALF],
    ['the high half full', 0n, MAX_HALF, MAX_HALF * (MAX_HALF + 1n)],
    ['2^256 - 1', MAX_HALF, MAX_HALF, (1n << 256n) - 1n],
  ])('%s', (_name, low, high, whole) => {
    expect(joinU256(toFelt(low), toFelt(high))).toBe(whole);
  });

  test.each([
    ['low', MAX_HALF + 1n, 0n],
    ['high', 0n, MAX_HALF + 1n],
    ['low, the largest felt', BigInt(LAST), 0n],
    ['high, the largest felt', 0n, BigInt(LAST)],
  ])('refuses a half of 2^128 or more: %s', (_name, low, high) => {
    expect(joinU256(toFelt(low), toFelt(high))).toBeNull();
  });
});
