import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import {
  amountText,
  bytesText,
  countOf,
  groupedDecimal,
  isoOfInput,
  localTime,
  numberText,
  printable,
  shortAmount,
  shortHex,
  shortUsd,
  usdText,
  utcTime,
} from '../../../console/src/format.ts';

const MAX_UINT256 = 2n ** 256n - 1n;

describe('an amount', () => {
  test.each([
    [0n, 18, '0'],
    [1n, 0, '1'],
    [1_234_500n, 3, '1,234.5'],
    [1_000_000n, 6, '1'],
    [1n, 18, '0.000000000000000001'],
    [-1_234_567n, 2, '-12,345.67'],
    [2n ** 53n + 1n, 0, '9,007,199,254,740,993'],
    [
      MAX_UINT256,
      18,
      '115,792,089,237,316,195,423,570,985,008,687,907,853,269,984,665,640,564,039,457.584007913129639935',
    ],
  ])('%s with %i decimals is written as %s', (amount, decimals, text) => {
    expect(amountText(amount, decimals)).toBe(text);
  });

  test('keeps every digit', () => {
    fc.assert(
      fc.property(
        fc.bigInt({ min: 0n, max: MAX_UINT256 }),
        fc.integer({ min: 0, max: 255 }),
        (amount, decimals) => {
          const [whole = '', fraction = ''] = amountText(amount, decimals).replaceAll(',', '').split('.');
          expect(BigInt(whole + fraction.padEnd(decimals, '0'))).toBe(amount);
        },
      ),
    );
  });

  test.each([
    [12_345_678_900n, 6, '12,345.6789'],
    [12_345_678_999n, 6, '12,345.6789…'],
    // Cut, not rounded.
    [1_999_999n, 6, '1.9999…'],
    [0n, 18, '0'],
    [123n, 18, '< 0.000000000001'],
    [-123n, 18, '> -0.000000000001'],
    [1_234_567n, 18, '0.000000000001234…'],
    [15n, 4, '0.0015'],
    [10n ** 18n, 0, '1.0000…e18'],
    [999_999_999_999_999_999n, 0, '999,999,999,999,999,999'],
  ])('%s with %i decimals is cut to %s', (amount, decimals, text) => {
    expect(shortAmount(amount, decimals)).toBe(text);
  });
});

test.each([
  [0, '0'],
  [1.5, '1.5'],
  [1e21, '1000000000000000000000'],
  [1.25e-7, '0.000000125'],
  [-1.5e-9, '-0.0000000015'],
  [1.7537531402181716e53, '175375314021817160000000000000000000000000000000000000'],
])('the number %s is written as %s', (value, text) => {
  expect(numberText(value)).toBe(text);
});

test.each([
  [0, '$0'],
  [1234.5, '$1,234.50'],
  [0.000123456, '$0.0001235'],
  [1.7537531402181716e53, '$1.754e53'],
  [1e-15, '< $0.000000000001'],
])('%s US dollars are shown as %s', (value, text) => {
  expect(shortUsd(value)).toBe(text);
});

test('US dollars and decimals keep every digit', () => {
  expect(usdText('66785.3015522')).toBe('$66,785.3015522');
  expect(usdText(0.1)).toBe('$0.1');
  expect(groupedDecimal('-1234567.1000')).toBe('-1,234,567.1');
});

test.each([
  [0, '0 B'],
  [999, '999 B'],
  [1000, '1.00 kB'],
  [49_900, '49.9 kB'],
  [12_345_678, '12.3 MB'],
  [999_499, '999 kB'],
  [999_500, '1.00 MB'],
  [999_999, '1.00 MB'],
  [999_999_999, '1.00 GB'],
  [5e15, '5.00 PB'],
])('%i bytes are shown as %s', (bytes, text) => {
  expect(bytesText(bytes)).toBe(text);
});

test('a time is local, and UTC beside it', () => {
  const time = new Date(2026, 0, 2, 3, 4, 5);
  expect(localTime(time)).toBe('2026-01-02 03:04:05');
  expect(utcTime(new Date('2026-01-02T03:04:05.678Z'))).toBe('2026-01-02 03:04:05 UTC');
});

test('isoOfInput returns null for an empty text and a year of five digits', () => {
  expect(isoOfInput('2026-01-02T03:04')).toBe(new Date(2026, 0, 2, 3, 4).toISOString());
  expect(['', '20261-01-02T03:04'].map(isoOfInput)).toEqual([null, null]);
});

test('an address is shortened without its leading zeros', () => {
  expect(shortHex(`0x0${'4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d'}`)).toBe(
    '0x4718f5…7c938d',
  );
  expect(shortHex(`0x${'0'.repeat(64)}`)).toBe('0x0');
  expect(shortHex(`0x${'0'.repeat(61)}123`)).toBe('0x123');
});

test('a foreign text is one line without marks that change what is around it', () => {
  expect(printable('a\u0000b\nc\u202Ed\u200Be')).toBe('a b c d e');
  expect(printable('<b>x</b>')).toBe('<b>x</b>');
  expect(printable('😀'.repeat(100))).toBe(`${'😀'.repeat(63)}…`);
});

test('a count names one thing in the singular', () => {
  expect([0, 1, 2, 1000].map((count) => countOf(count, 'sender'))).toEqual([
    '0 senders',
    '1 sender',
    '2 senders',
    '1,000 senders',
  ]);
});
