import { describe, expect, test } from 'vitest';

import { decodeBlock } from '../../../../schemas/decode/index.ts';
import type { RawEvent } from '../../../../schemas/messages/chain-blocks.ts';
import type { TokenStandard } from '../../../../schemas/messages/common.ts';
import {
  BATCH,
  ERC20_EVENT,
  SINGLE,
  TRANSFER,
  block,
  contract,
  event,
  felt,
  transaction,
} from './builders.ts';

const FROM = '0x49d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004d01';
const TO = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c9302';
const OPERATOR = '0x53c91253bc9682c04929ca02ed00b3e423f6710d2ee7e0d5ebb06f3ecf36803';

const HALF = '0x100000000000000000000000000000000'; // 2^128
const MAX_HALF = '0xffffffffffffffffffffffffffffffff';
const MAX = 115792089237316195423570985008687907853269984665640564039457584007913129639935n; // 2^256 - 1

/** What one event comes to: its transfers as [kind, amount, token id], or the reason why it is malformed. */
function read(raw: RawEvent, standard: TokenStandard = 'erc20') {
  const { transfers, malformed } = decodeBlock(block([transaction([raw])]), contract(standard));
  for (const transfer of transfers) {
    expect([transfer.from, transfer.to], 'from and to').toEqual([felt(FROM), felt(TO)]);
  }
  const reasons = malformed.map(({ reason }) => reason);
  if (reasons.length > 0) expect(transfers).toEqual([]);
  return reasons[0] ?? transfers.map(({ kind, amount, tokenId }) => [kind, amount, tokenId]);
}

/** Every shape of `Transfer` that carries a number of two halves, and of one felt. */
const twoHalves: [string, (low: string, high: string) => RawEvent][] = [
  ['3/2', (low, high) => event([TRANSFER, FROM, TO], [low, high])],
  ['1/4', (low, high) => event([TRANSFER], [FROM, TO, low, high])],
  ['5/0', (low, high) => event([TRANSFER, FROM, TO, low, high], [])],
  ['component 4/2', (low, high) => event([ERC20_EVENT, TRANSFER, FROM, TO], [low, high])],
  ['component 2/4', (low, high) => event([ERC20_EVENT, TRANSFER], [FROM, TO, low, high])],
  ['component 6/0', (low, high) => event(['0x1', TRANSFER, FROM, TO, low, high], [])],
];
const oneFelt: [string, (number: string) => RawEvent][] = [
  ['3/1', (number) => event([TRANSFER, FROM, TO], [number])],
  ['1/3', (number) => event([TRANSFER], [FROM, TO, number])],
  ['4/0', (number) => event([TRANSFER, FROM, TO, number], [])],
  ['component 4/1', (number) => event([ERC20_EVENT, TRANSFER, FROM, TO], [number])],
  ['component 2/3', (number) => event([ERC20_EVENT, TRANSFER], [FROM, TO, number])],
  ['component 5/0', (number) => event([ERC20_EVENT, TRANSFER, FROM, TO, number], [])],
];

describe.each(twoHalves)('Transfer %s', (_name, encode) => {
  test.each([
    ['0x0', '0x0', 0n],
    ['0x1', '0x0', 1n],
    ['0x0', '0x1', 340282366920938463463374607431768211456n],
    [MAX_HALF, '0x0', 340282366920938463463374607431768211455n],
    [MAX_HALF, MAX_HALF, MAX],
  ])('low %s, high %s', (low, high, number) => {
    expect(read(encode(low, high), 'erc20')).toEqual([['erc20', number, null]]);
    expect(read(encode(low, high), 'erc721')).toEqual([['erc721', 1n, number]]);
    expect(read(encode(low, high), 'unknown')).toEqual([['unknown', number, null]]);
    // ERC-1155 defines no Transfer, so its number may be an id or an amount
    expect(read(encode(low, high), 'erc1155')).toEqual([['unknown', number, null]]);
  });

  test.each(['erc20', 'erc721', 'erc1155', 'unknown'] as const)(
    'a half of 2^128, contract %s',
    (standard) => {
      expect(read(encode(HALF, '0x0'), standard)).toMatch(
        /(data|keys)\[[0-3]\] should be half of a u256, but/,
      );
      expect(read(encode('0x0', HALF), standard)).toMatch(
        /(data|keys)\[[1-4]\] should be half of a u256, but/,
      );
      expect(read(encode(HALF, HALF), standard)).toMatch(/should be half of a u256, but is 2\^128 or more/);
    },
  );
});

describe.each(oneFelt)('Transfer %s', (_name, encode) => {
  test.each([
    ['0x0', 0n],
    ['0x1', 1n],
    [MAX_HALF, 340282366920938463463374607431768211455n],
    [HALF, 340282366920938463463374607431768211456n],
    // the last felt
    [
      '0x800000000000011000000000000000000000000000000000000000000000000',
      3618502788666131213697322783095070105623107215331596699973092056135872020480n,
    ],
  ])('%s', (word, number) => {
    expect(read(encode(word), 'erc20')).toEqual([['erc20', number, null]]);
    expect(read(encode(word), 'erc721')).toEqual([['erc721', 1n, number]]);
    expect(read(encode(word), 'unknown')).toEqual([['unknown', number, null]]);
    expect(read(encode(word), 'erc1155')).toEqual([['unknown', number, null]]);
  });
});

describe.each([
  ['3/0', event([TRANSFER, FROM, TO], [])],
  ['component 4/0', event([ERC20_EVENT, TRANSFER, FROM, TO], [])],
])('Transfer %s, its number left out', (_name, raw) => {
  test('transfers 0', () => {
    expect(read(raw, 'erc20')).toEqual([['erc20', 0n, null]]);
    expect(read(raw, 'unknown')).toEqual([['unknown', 0n, null]]);
    expect(read(raw, 'erc1155')).toEqual([['unknown', 0n, null]]);
  });

  test('is malformed for ERC-721, as the token id is missing', () => {
    expect(read(raw, 'erc721')).toContain('an ERC-721 Transfer without a token id');
  });
});

test('a contract missing in the map is unknown', () => {
  const body = block([transaction([event([TRANSFER, FROM, TO], ['0x7', '0x0'])])]);
  expect(decodeBlock(body, {}).transfers).toMatchObject([{ kind: 'unknown', amount: 7n, tokenId: null }]);
});

test('decodes keyed and un-keyed events of one token', () => {
  const events = [
    event([TRANSFER], [FROM, TO, '0x1', '0x0']),
    event([TRANSFER, FROM, TO], ['0x2', '0x0']),
    event([TRANSFER], [FROM, TO, '0x3', '0x0']),
  ];
  const { transfers } = decodeBlock(block([transaction(events)]), contract('erc20'));
  expect(transfers.map(({ from, to, amount }) => [from, to, amount])).toEqual([
    [felt(FROM), felt(TO), 1n],
    [felt(FROM), felt(TO), 2n],
    [felt(FROM), felt(TO), 3n],
  ]);
});

const singles: [string, (halves: readonly string[]) => RawEvent][] = [
  ['4/4', (halves) => event([SINGLE, OPERATOR, FROM, TO], halves)],
  ['1/7', (halves) => event([SINGLE], [OPERATOR, FROM, TO, ...halves])],
  ['component 5/4', (halves) => event(['0x2', SINGLE, OPERATOR, FROM, TO], halves)],
  ['component 2/7', (halves) => event(['0x2', SINGLE], [OPERATOR, FROM, TO, ...halves])],
];

describe.each(singles)('TransferSingle %s', (_name, encode) => {
  test.each([
    [['0x5', '0x0', '0x9', '0x0'], 5n, 9n],
    [['0x0', '0x0', '0x0', '0x0'], 0n, 0n],
    [['0x0', '0x1', '0x1', '0x0'], 340282366920938463463374607431768211456n, 1n],
    [['0x1', '0x0', '0x0', '0x1'], 1n, 340282366920938463463374607431768211456n],
    [[MAX_HALF, MAX_HALF, MAX_HALF, MAX_HALF], MAX, MAX],
  ] as const)('%j', (halves, id, value) => {
    // the event itself names the standard, however the contract is classified
    for (const standard of ['erc1155', 'erc20', 'erc721', 'unknown'] as const) {
      expect(read(encode(halves), standard)).toEqual([['erc1155', value, id]]);
    }
  });

  test.each([0, 1, 2, 3])('half %i is 2^128', (wrong) => {
    const halves = [0, 1, 2, 3].map((index) => (index === wrong ? HALF : '0x1'));
    expect(read(encode(halves), 'erc1155')).toMatch(
      /data\[[0-6]\] should be half of a u256, but is 2\^128 or more/,
    );
  });
});

test.each([
  ['4/2', event([SINGLE, OPERATOR, FROM, TO], [HALF, '0x9'])],
  ['component 5/2', event(['0x2', SINGLE, OPERATOR, FROM, TO], [HALF, '0x9'])],
])('TransferSingle %s: id and value are a felt each', (_name, raw) => {
  expect(read(raw, 'erc1155')).toEqual([['erc1155', 9n, 340282366920938463463374607431768211456n]]);
});

const batches: [string, (...words: string[]) => RawEvent][] = [
  ['4/…', (...words) => event([BATCH, OPERATOR, FROM, TO], words)],
  ['1/…', (...words) => event([BATCH], [OPERATOR, FROM, TO, ...words])],
  ['component 5/…', (...words) => event(['0x2', BATCH, OPERATOR, FROM, TO], words)],
  ['component 2/…', (...words) => event(['0x2', BATCH], [OPERATOR, FROM, TO, ...words])],
];

describe.each(batches)('TransferBatch %s', (_name, encode) => {
  test('decodes an empty batch', () => {
    expect(read(encode('0x0', '0x0'), 'erc1155')).toEqual([]);
  });

  test('decodes a batch of one', () => {
    expect(read(encode('0x1', '0x7', '0x0', '0x1', '0x3', '0x0'), 'erc1155')).toEqual([['erc1155', 3n, 7n]]);
  });

  test('decodes a batch of three with one token twice', () => {
    const ids = ['0x3', '0x7', '0x0', '0x7', '0x0', MAX_HALF, MAX_HALF];
    const values = ['0x3', '0x1', '0x0', '0x0', '0x1', '0x0', '0x0'];
    expect(read(encode(...ids, ...values), 'erc20')).toEqual([
      ['erc1155', 1n, 7n],
      ['erc1155', 340282366920938463463374607431768211456n, 7n],
      ['erc1155', 0n, MAX],
    ]);
  });

  test.each([
    ['no data', [], 'ends before the length'],
    ['no values', ['0x0'], 'ends before the length'],
    ['ids without values', ['0x1', '0x7', '0x0'], 'ends before the length'],
    ['more ids than there is room for', ['0x2', '0x7', '0x0'], 'is 2, but there is room for 1'],
    [
      'more values than there is room for',
      ['0x1', '0x7', '0x0', '0x2', '0x3', '0x0'],
      'is 2, but there is room',
    ],
    ['half an id', ['0x1', '0x7'], 'is 1, but there is room for 0'],
    ['half a value', ['0x1', '0x7', '0x0', '0x1', '0x3'], 'is 1, but there is room for 0'],
    ['more ids than values', ['0x1', '0x7', '0x0', '0x0'], 'a batch of 1 ids and 0 values'],
    ['more values than ids', ['0x0', '0x1', '0x3', '0x0'], 'a batch of 0 ids and 1 values'],
    ['a surplus', ['0x0', '0x0', '0x0'], '1 felts follow'],
    ['a length of 2^32', ['0x100000000', '0x0'], 'is 4294967296, but there is room for 0'],
    ['a length that is no half', [HALF, '0x0'], 'but there is room for 0'],
    [
      'ids and values of one felt each',
      ['0x2', '0x7', '0x8', '0x2', '0x1', '0x1'],
      'is 1, but there is room for 0',
    ],
    ['the first id', ['0x1', HALF, '0x0', '0x1', '0x3', '0x0'], 'should be half of a u256'],
    ['the first id, high', ['0x1', '0x7', HALF, '0x1', '0x3', '0x0'], 'should be half of a u256'],
    [
      'the last value, after a good item',
      ['0x2', '0x7', '0x0', '0x8', '0x0', '0x2', '0x3', '0x0', '0x3', HALF],
      'should be half of a u256',
    ],
  ] as [string, string[], string][])('malformed as a whole: %s', (_what, words, reason) => {
    expect(read(encode(...words), 'erc1155')).toContain(reason);
  });
});

describe('a token selector in an unknown shape', () => {
  /** The known shapes, repeated independently of the table; batches have any length. */
  const rows: Record<string, string[]> = {
    [TRANSFER]: ['3/2', '1/4', '5/0', '3/1', '1/3', '4/0', '3/0'],
    [SINGLE]: ['4/4', '1/7', '4/2'],
    [BATCH]: [],
  };

  test.each([
    ['Transfer', TRANSFER],
    ['TransferSingle', SINGLE],
    ['TransferBatch', BATCH],
  ])('%s is malformed, flat and of a component', (name, selector) => {
    for (let keys = 1; keys <= 8; keys += 1) {
      for (let data = 0; data <= 12; data += 1) {
        if (rows[selector]?.includes(`${keys}/${data}`)) continue;
        if (selector === BATCH && (keys === 1 || keys === 4)) continue;
        const ones = (length: number) => Array.from({ length }, () => '0x1');
        const flat = event([selector, ...ones(keys - 1)], ones(data));
        const nested = { ...flat, keys: [felt('0xc0ffee'), ...flat.keys] };
        const reason = `no layout of ${name} has ${keys} keys and ${data} data felts`;
        expect(read(flat)).toBe(reason);
        expect(read(nested)).toBe(`after the key of its variant: ${reason}`);
      }
    }
  });
});

describe('two leading token selectors', () => {
  test('a selector as address is decoded by the only interpretation with its shape', () => {
    const raw = event([TRANSFER, TRANSFER, TO], ['0x2', '0x0']);
    const { transfers } = decodeBlock(block([transaction([raw])]), contract('erc20'));
    expect(transfers).toMatchObject([{ from: felt(TRANSFER), to: felt(TO), amount: 2n }]);
  });

  test('decodes a variant named Transfer', () => {
    expect(read(event([TRANSFER, TRANSFER, FROM, TO], ['0x2', '0x0']))).toEqual([['erc20', 2n, null]]);
  });

  test('an address in place of a u256 half leaves the nested interpretation', () => {
    // flat: from = Transfer, to = FROM, low = TO (too big). Behind a variant: from, to, one felt
    expect(read(event([TRANSFER, TRANSFER, FROM, TO, '0x2'], []))).toEqual([['erc20', 2n, null]]);
  });

  test('is malformed if both interpretations are valid, or neither', () => {
    expect(read(event([TRANSFER, TRANSFER, FROM, '0x3'], []))).toContain('both interpretations are valid');
    expect(read(event([TRANSFER, TRANSFER, FROM, '0x3', '0x2'], []))).toContain(
      'both interpretations are valid',
    );
    expect(read(event([TRANSFER, TRANSFER], ['0x2']))).toContain('no layout of Transfer has 2 keys');
  });
});
