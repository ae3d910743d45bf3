import { describe, expect, test } from 'vitest';

import { parseBlockHeader, parseBlockWithReceipts, readFelts } from '../../../../pipeline/node/parse.ts';
import { blockBody } from '../../../../schemas/messages/chain-blocks.ts';
import { readRecordedBlock, whySkipped } from '../../../support/recorded-blocks.ts';

const padded = (hex: string): string => `0x${hex.slice(2).padStart(64, '0')}`;

type Json = Record<string, unknown>;

function transaction(change: { transaction?: Json; receipt?: Json } = {}): Json {
  return {
    transaction: { type: 'INVOKE', version: '0x3', sender_address: '0xA', ...change.transaction },
    receipt: {
      type: 'INVOKE',
      transaction_hash: '0x7',
      actual_fee: { amount: '0x10', unit: 'FRI' },
      execution_status: 'SUCCEEDED',
      finality_status: 'ACCEPTED_ON_L2',
      messages_sent: [],
      events: [{ from_address: '0xC0', keys: ['0x1', '0x0'], data: [] }],
      ...change.receipt,
    },
  };
}

/** A block of specification 0.8, without counts in the header. */
function block(change: Json = {}): Json {
  return {
    status: 'ACCEPTED_ON_L2',
    block_hash: '0xB',
    parent_hash: '0xa',
    block_number: 7,
    timestamp: 1_700_000_000,
    sequencer_address: '0x5',
    starknet_version: '0.13.0',
    new_root: '0x0',
    transactions: [transaction()],
    ...change,
  };
}

describe('parseBlockWithReceipts', () => {
  test('normalises felts to padded lower case and fees to decimal', () => {
    expect(parseBlockWithReceipts(block(), 123)).toEqual({
      status: 'ACCEPTED_ON_L2',
      eventCommitment: null,
      details: expect.any(Function),
      bytes: 123,
      body: {
        height: 7,
        hash: padded('0xb'),
        parent_hash: padded('0xa'),
        timestamp: 1_700_000_000,
        sequencer_address: padded('0x5'),
        starknet_version: '0.13.0',
        transaction_count: null,
        event_count: null,
        transactions: [
          {
            hash: padded('0x7'),
            type: 'INVOKE',
            sender_address: padded('0xa'),
            fee: '16',
            fee_unit: 'FRI',
            execution_status: 'SUCCEEDED',
            events: [{ from_address: padded('0xc0'), keys: [padded('0x1'), padded('0x0')], data: [] }],
          },
        ],
      },
    });
  });

  test.each([
    [
      'an old bare fee of version 1',
      { transaction: { version: '0x1' }, receipt: { actual_fee: '0xff' } },
      '255',
      'WEI',
    ],
    ['a bare fee of version 3', { receipt: { actual_fee: '0x1' } }, '1', 'FRI'],
    [
      'a fee without a unit',
      { transaction: { version: '0x0' }, receipt: { actual_fee: { amount: '0x0' } } },
      '0',
      'WEI',
    ],
    [
      'a fee above 2^64',
      { receipt: { actual_fee: { amount: '0xffffffffffffffffff', unit: 'WEI' } } },
      '4722366482869645213695',
      'WEI',
    ],
  ])('reads %s', (_, change, fee, unit) => {
    const { body } = parseBlockWithReceipts(block({ transactions: [transaction(change)] }), 1);
    expect(body.transactions[0]).toMatchObject({ fee, fee_unit: unit });
  });

  test.each([
    [
      'INVOKE of version 0',
      { type: 'INVOKE', contract_address: '0xcc', sender_address: undefined },
      {},
      padded('0xcc'),
    ],
    ['DECLARE', { type: 'DECLARE', sender_address: '0xd' }, {}, padded('0xd')],
    [
      'DEPLOY_ACCOUNT',
      { type: 'DEPLOY_ACCOUNT', sender_address: undefined },
      { contract_address: '0xe' },
      padded('0xe'),
    ],
    ['DEPLOY', { type: 'DEPLOY', sender_address: undefined }, { contract_address: '0xe' }, null],
    ['L1_HANDLER', { type: 'L1_HANDLER', sender_address: undefined, contract_address: '0xf' }, {}, null],
  ])('finds the sender of %s', (_, tx, receipt, sender) => {
    const { body } = parseBlockWithReceipts(
      block({ transactions: [transaction({ transaction: tx, receipt })] }),
      1,
    );
    expect(body.transactions[0]?.sender_address).toBe(sender);
  });

  test('reads null as a list without felts, in events and in messages to L1', () => {
    const lists = {
      events: [
        { from_address: '0xc0', keys: ['0x1'], data: null },
        { from_address: '0xc0', keys: null, data: ['0x2'] },
      ],
      messages_sent: [{ from_address: '0x1', to_address: '0x2', payload: null }],
    };
    const fetched = parseBlockWithReceipts(block({ transactions: [transaction({ receipt: lists })] }), 1);
    expect(fetched.body.transactions[0]?.events).toMatchObject([
      { keys: [padded('0x1')], data: [] },
      { keys: [], data: [padded('0x2')] },
    ]);
    expect(fetched.details?.()[0]?.messages).toMatchObject([{ payload: [] }]);
  });

  test.each([
    ['pending', { status: 'PENDING' }],
    ['pre-confirmed', { status: 'PRE_CONFIRMED' }],
    [
      'pre-confirmed in 0.10: no hash, no status',
      { status: undefined, block_hash: undefined, parent_hash: undefined },
    ],
    ['rejected', { status: 'REJECTED' }],
    ['with a status that has no string form', { status: { toString: 1 } }],
    ['without a hash', { block_hash: undefined }],
    ['with a hash above the field', { block_hash: `0x${'f'.repeat(64)}` }],
    ['with a height in a string', { block_number: '7' }],
    ['with a fractional height', { block_number: 7.5 }],
    ['with a negative time', { timestamp: -1 }],
    ['with a time in milliseconds', { timestamp: 1_700_000_000_000 }],
    ['with transactions that are not a list', { transactions: {} }],
    ['with bare transaction hashes', { transactions: ['0x1'] }],
    ['with a count that is not a number', { transaction_count: '1' }],
    [
      'with an unknown execution status',
      { transactions: [transaction({ receipt: { execution_status: 'DONE' } })] },
    ],
    [
      'with an execution status that has no string form',
      { transactions: [transaction({ receipt: { execution_status: { toString: 1 } } })] },
    ],
    ['without events', { transactions: [transaction({ receipt: { events: undefined } })] }],
    [
      'with a key that is a number',
      {
        transactions: [transaction({ receipt: { events: [{ from_address: '0x1', keys: [1], data: [] }] } })],
      },
    ],
    [
      'with an unknown unit',
      { transactions: [transaction({ receipt: { actual_fee: { amount: '0x1', unit: 'GWEI' } } })] },
    ],
    ['with two transactions of one hash', { transactions: [transaction(), transaction()] }],
  ])('rejects a block that is %s, as retryable', (_, change) => {
    expect(() => parseBlockWithReceipts(block(change), 1)).toThrow(
      expect.objectContaining({ code: 'NODE_ANSWER_INVALID', retryable: true }),
    );
  });

  test.each<[Json, string]>([
    [{ block_hash: '0xZZ' }, 'block_hash: not a felt: "0xZZ"'],
    [{ block_hash: `no${'!'.repeat(500)}` }, `block_hash: not a felt: "no${'!'.repeat(78)}"`],
    [{ block_hash: null }, 'block_hash: not a felt: null'],
    [{ timestamp: '1700000000' }, 'timestamp: not a non-negative integer: "1700000000"'],
    [{ transactions: {} }, 'transactions: not a list: an object'],
    [{ transactions: [[]] }, 'transactions[0]: not an object: a list'],
    [{ starknet_version: undefined }, 'starknet_version: not a string: undefined'],
    [
      { status: 'PRE_CONFIRMED' },
      'the block has status "PRE_CONFIRMED", not ACCEPTED_ON_L2 or ACCEPTED_ON_L1',
    ],
  ])('names the field and the value that it rejects: %j', (change, message) => {
    expect(() => parseBlockWithReceipts(block(change), 1)).toThrow(expect.objectContaining({ message }));
  });

  test.each([
    ['a transaction too few', { transaction_count: 2, event_count: 1 }],
    ['an event too few', { transaction_count: 1, event_count: 2 }],
    ['an event too many', { transaction_count: 1, event_count: 0 }],
  ])('rejects a body with %s as incomplete', (_, counts) => {
    expect(() => parseBlockWithReceipts(block(counts), 1)).toThrow(
      expect.objectContaining({ code: 'BLOCK_INCOMPLETE', retryable: true }),
    );
    expect(() => parseBlockHeader(block(counts))).not.toThrow();
    // No table holds such a height.
    expect(() => parseBlockHeader(block({ block_number: 0xffff_ffff }))).toThrow(
      'block_number: not a height: 4294967295',
    );
  });

  test('keeps counts that match the body', () => {
    const { body } = parseBlockWithReceipts(block({ transaction_count: 1, event_count: 1 }), 1);
    expect([body.transaction_count, body.event_count]).toEqual([1, 1]);
  });

  test('normalises the event commitment, which a node may leave out', () => {
    const commitmentOf = (given: Json) => parseBlockWithReceipts(block(given), 1).eventCommitment;
    expect(commitmentOf({ event_commitment: '0xAB' })).toBe(`0x${'0'.repeat(62)}ab`);
    expect(commitmentOf({ event_commitment: null })).toBeNull();
    expect(() => commitmentOf({ event_commitment: 7 })).toThrow('event_commitment: not a felt: 7');
  });

  const hashed = {
    new_root: '0x1',
    state_diff_length: 5,
    l1_da_mode: 'BLOB',
    l1_gas_price: { price_in_wei: '0xA', price_in_fri: '0xb' },
    l1_data_gas_price: { price_in_wei: '0x1', price_in_fri: '0x2' },
    l2_gas_price: { price_in_wei: '0x3', price_in_fri: '0x4' },
    state_diff_commitment: '0x2',
    transaction_commitment: '0x3',
    event_commitment: '0x4',
    receipt_commitment: '0x5',
  };
  const headerOf = (given: Json) => parseBlockWithReceipts(block(given), 1).body.header;

  test('keeps the rest of what the hash commits to, with prices in decimal', () => {
    const header = {
      new_root: padded('0x1'),
      state_diff_length: 5,
      l1_da_mode: 'BLOB',
      l1_gas_price: { price_in_wei: '10', price_in_fri: '11' },
      l1_data_gas_price: { price_in_wei: '1', price_in_fri: '2' },
      l2_gas_price: { price_in_wei: '3', price_in_fri: '4' },
      state_diff_commitment: padded('0x2'),
      transaction_commitment: padded('0x3'),
      event_commitment: padded('0x4'),
      receipt_commitment: padded('0x5'),
    };
    expect(headerOf(hashed)).toEqual(header);
    expect(headerOf({ ...hashed, l2_gas_price: undefined })).toEqual({ ...header, l2_gas_price: null });
  });

  test.each(Object.keys(hashed).filter((name) => name !== 'l2_gas_price'))(
    'keeps nothing of it without %s, and rejects one of another type',
    (name) => {
      expect(headerOf({ ...hashed, [name]: undefined })).toBeUndefined();
      if (name === 'l1_da_mode') expect(headerOf({ ...hashed, [name]: 7 })).toBeUndefined();
      else expect(() => headerOf({ ...hashed, [name]: true })).toThrow(name);
    },
  );

  test.each(['price_in_wei', 'price_in_fri'])('keeps nothing of it without a %s', (name) => {
    const price = { ...hashed.l1_gas_price, [name]: null };
    expect(headerOf({ ...hashed, l1_gas_price: price })).toBeUndefined();
    expect(() => headerOf({ ...hashed, l1_gas_price: { ...price, [name]: 7 } })).toThrow(name);
  });
});

// Figures of ../shared/blocks/README.md.
describe.each([
  ['mainnet-2500', 2500, 426, 26],
  ['mainnet-2800', 2800, 184, 196],
  ['mainnet-65000', 65_000, 236, 814],
  ['sepolia-3100000', 3_100_000, 3, 3],
])('recorded %s', (name, height, transactions, events) => {
  test.skipIf(whySkipped !== '')(`${whySkipped}parses into a body that satisfies the topic's schema`, () => {
    const { body, status } = parseBlockWithReceipts(readRecordedBlock(`${name}.json`), 1);
    expect(status).toBe('ACCEPTED_ON_L1');
    expect(body.height).toBe(height);
    expect(body.transactions).toHaveLength(transactions);
    expect(body.transactions.flatMap((one) => one.events)).toHaveLength(events);
    expect(blockBody.parse(body)).toEqual(body);
  });
});

test('readFelts says no more than 500 characters about an answer without felts', () => {
  expect(() => readFelts(Array.from({ length: 10_000 }, () => 'none'))).toThrow(
    expect.objectContaining({
      code: 'NODE_ANSWER_INVALID',
      message: expect.stringMatching(/^felts: [^]{493}$/),
    }),
  );
});
