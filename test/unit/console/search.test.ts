import { expect, test } from 'vitest';

import { asFelt, classify } from '../../../console/src/search.ts';

const STRK = '0x04718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';
const LARGEST = `0x0800000000000011${'0'.repeat(48)}`;

test.each([
  ['', { kind: 'none' }],
  ['  ', { kind: 'none' }],
  ['0', { kind: 'block', height: 0 }],
  [' 1234567 ', { kind: 'block', height: 1_234_567 }],
  ['1,234,567', { kind: 'block', height: 1_234_567 }],
  ['#42', { kind: 'block', height: 42 }],
  ['4294967295', { kind: 'block', height: 4_294_967_295 }],
  ['4294967296', { kind: 'text', text: '4294967296' }],
  [STRK, { kind: 'felt', hex: STRK }],
  [STRK.replace('0x0', '0x').toUpperCase().replace('X', 'x'), { kind: 'felt', hex: STRK }],
  [STRK.slice(2), { kind: 'felt', hex: STRK }],
  ['0x1', { kind: 'felt', hex: `0x${'0'.repeat(63)}1` }],
  ['0x', { kind: 'text', text: '0x' }],
  [`0x${'f'.repeat(64)}`, { kind: 'text', text: `0x${'f'.repeat(64)}` }],
  [`0x${'1'.repeat(65)}`, { kind: 'text', text: `0x${'1'.repeat(65)}` }],
  ['STRK', { kind: 'text', text: 'STRK' }],
  ['1inch', { kind: 'text', text: '1inch' }],
  ['<img src=x>', { kind: 'text', text: '<img src=x>' }],
])('%j is searched for as %j', (text, asked) => {
  expect(classify(text)).toEqual(asked);
});

test('a felt is below the order of the field', () => {
  expect(asFelt(LARGEST)).toBe(LARGEST);
  expect(asFelt(`${LARGEST.slice(0, -1)}1`)).toBeNull();
});
