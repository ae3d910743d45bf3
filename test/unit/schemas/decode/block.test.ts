import { hash } from 'starknet';
import { describe, expect, test } from 'vitest';

import {
  EVENT_INDEX_ITEM_FACTOR,
  decodeBlock,
  eventIndex,
  tokenContracts,
} from '../../../../schemas/decode/index.ts';
import type { BlockTransaction, RawEvent } from '../../../../schemas/messages/chain-blocks.ts';
import {
  APPROVAL,
  BATCH,
  ERC20_EVENT,
  SEQUENCER,
  SINGLE,
  TOKEN,
  TRANSFER,
  block,
  contract,
  event,
  felt,
  transaction,
} from './builders.ts';

const ETH = felt('0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7');
const STRK = felt('0x04718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d');

test('selectors are the keccak of the event names', () => {
  const names = { Transfer: TRANSFER, TransferSingle: SINGLE, TransferBatch: BATCH, Approval: APPROVAL };
  for (const [name, selector] of Object.entries(names)) {
    expect(hash.getSelectorFromName(name)).toBe(selector);
  }
});

test('a transfer has its position among all events and the fee of its transaction', () => {
  const body = block([
    transaction([event([APPROVAL, '0x1', '0x2'], ['0x3', '0x0']), event([], ['0x1'])]),
    transaction([], { hash: felt('0xe') }),
    transaction(
      [
        event([APPROVAL], []),
        event([BATCH, '0x0f', '0xa', '0xb'], ['0x2', 1, 0, 2, 0, '0x2', 10, 0, 20, 0]),
        event([TRANSFER], ['0xc']),
        event([TRANSFER, '0xa', '0xb'], ['0x5', '0x0']),
      ],
      {
        hash: felt('0xf'),
        fee: '123456789012345678901234567890',
        fee_unit: 'WEI',
        execution_status: 'REVERTED',
      },
    ),
  ]);
  const common = {
    token: TOKEN,
    from: felt('0xa'),
    to: felt('0xb'),
    txIndex: 2,
    txHash: felt('0xf'),
    isFee: false,
    executionStatus: 'REVERTED',
    fee: 123456789012345678901234567890n,
    feeToken: ETH,
  };
  expect(decodeBlock(body, contract('erc20'))).toEqual({
    transfers: [
      { ...common, kind: 'erc1155', amount: 10n, tokenId: 1n, position: 3, item: 0, eventInTx: 1 },
      { ...common, kind: 'erc1155', amount: 20n, tokenId: 2n, position: 3, item: 1, eventInTx: 1 },
      { ...common, kind: 'erc20', amount: 5n, tokenId: null, position: 5, item: 0, eventInTx: 3 },
    ],
    malformed: [
      {
        position: 4,
        txHash: felt('0xf'),
        event: event([TRANSFER], ['0xc']),
        reason: 'no layout of Transfer has 1 keys and 1 data felts',
      },
    ],
  });
});

describe('is not a token event:', () => {
  test.each([
    ['an approval', event([APPROVAL, '0x1', '0x2'], ['0x3', '0x0'])],
    ['an event without keys', event([], ['0x1', '0x2', '0x3', '0x0'])],
    ['an event without anything', event([], [])],
    ['a selector that is in the data', event(['0x1'], [TRANSFER, '0x2', '0x3', '0x4'])],
    ['a selector behind two variants', event(['0x1', '0x2', TRANSFER, '0xa', '0xb'], ['0x5', '0x0'])],
  ])('%s', (_name, raw) => {
    const body = block([transaction([raw])]);
    expect(decodeBlock(body, contract('erc20'))).toEqual({ transfers: [], malformed: [] });
    expect(tokenContracts(body)).toEqual([]);
  });
});

test('contracts with an event of the shape of a token, once each, in order', () => {
  const emit = (address: number, raw: RawEvent): RawEvent => ({ ...raw, from_address: felt(address) });
  const body = block([
    transaction([
      emit(9, event([TRANSFER], ['0x1', '0x2', '0x3', '0x0'])),
      emit(1, event([APPROVAL], [])),
      emit(2, event([TRANSFER], ['0x1'])), // a shape of no row
      emit(3, event([ERC20_EVENT, TRANSFER, '0xa', '0xb'], ['0x5', '0x0'])),
    ]),
    transaction([
      emit(4, event([SINGLE, '0x1', '0xa', '0xb'], ['0x1', '0x0', '0x1', '0x0'])),
      emit(9, event([TRANSFER, '0xa', '0xb'], [])),
      emit(5, event([BATCH, '0x1', '0xa', '0xb'], ['0x0', '0x0'])),
      emit(6, event([TRANSFER, TRANSFER, '0xa', '0xb'], ['0x5', '0x0'])),
    ]),
  ]);
  expect(tokenContracts(body)).toEqual([9, 3, 4, 5, 6].map(felt));
});

describe('isFee', () => {
  const pay = (token = STRK, amount: bigint = 700n, to: string = SEQUENCER) =>
    event([TRANSFER], ['0xacc0', to, amount, '0x0'], token);
  const flags = (events: RawEvent[], fields: Partial<BlockTransaction> = {}) =>
    decodeBlock(block([transaction(events, { fee: '700', ...fields })]), {
      ...contract('erc20', STRK),
      ...contract('erc20', ETH),
    }).transfers.map(({ isFee }) => isFee);

  test.each<[string, boolean[], RawEvent[], Partial<BlockTransaction>?]>([
    ['STRK for FRI', [true], [pay()]],
    ['ETH for WEI', [true], [pay(ETH)], { fee_unit: 'WEI' }],
    ['keyed', [true], [event([TRANSFER, '0xacc0', SEQUENCER], [700, '0x0'], STRK)]],
    ['of a reverted transaction', [true], [pay()], { execution_status: 'REVERTED' }],
    ['only the last of two alike', [false, true], [pay(), pay()]],
    ['not when another event follows', [false], [pay(), event([APPROVAL], [])]],
    ['not ETH for FRI', [false], [pay(ETH)]],
    ['not STRK for WEI', [false], [pay(STRK)], { fee_unit: 'WEI' }],
    ['not another token', [false], [pay(TOKEN)]],
    ['not one less', [false], [pay(STRK, 699n)]],
    ['not one more', [false], [pay(STRK, 701n)]],
    ['not to another account', [false], [pay(STRK, 700n, '0xacc1')]],
    ['not 0 where no fee was paid', [false], [pay(STRK, 0n)], { fee: '0' }],
    ['not an ERC-1155 event', [false], [event([SINGLE, '0x1', '0xacc0', SEQUENCER], [1, 0, 700, 0], STRK)]],
  ])('%s', (_name, expected, events, fields) => {
    expect(flags(events, fields)).toEqual(expected);
  });

  test('a fee transfer of a token of unknown standard', () => {
    const body = block([transaction([pay()], { fee: '700' })]);
    expect(decodeBlock(body, {}).transfers).toMatchObject([{ kind: 'unknown', amount: 700n, isFee: true }]);
  });
});

describe('eventIndex', () => {
  test.each([
    [0, 0, 0],
    [7, 0, 7],
    [1_048_575, 0, 1_048_575],
    [0, 1, 1_048_576],
    [7, 3, 3_145_735],
    [1_048_575, 4_294_967_295, 4_503_599_627_370_495],
  ])('position %i, item %i', (position, item, index) => {
    expect(eventIndex(position, item)).toBe(index);
    expect(Number.isSafeInteger(index)).toBe(true);
  });

  test.each([
    [1_048_576, 0],
    [0, 4_294_967_296],
    [-1, 0],
    [0, -1],
    [0.5, 0],
    [Number.NaN, 0],
  ])('rejects position %d, item %d, whose index is out of range', (position, item) => {
    expect(() => eventIndex(position, item)).toThrow(RangeError);
  });

  test('a transfer at a position without an index of its own is malformed', () => {
    const filler = event([APPROVAL], []);
    const events = Array.from({ length: EVENT_INDEX_ITEM_FACTOR - 1 }, () => filler);
    const transfer = event([TRANSFER, '0xa', '0xb'], ['0x5', '0x0']);
    const { transfers, malformed } = decodeBlock(block([transaction([...events, transfer, transfer])]), {});
    expect(transfers.map(({ position }) => position)).toEqual([1_048_575]);
    expect(malformed).toMatchObject([{ position: 1_048_576, reason: 'position 1048576 has no event_index' }]);
  });
});
