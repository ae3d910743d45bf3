import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { parseBlockWithReceipts } from '../../../../pipeline/node/parse.ts';
import { blockHash } from '../../../../schemas/commitment/block-hash.ts';
import type { HashedBlock } from '../../../../schemas/commitment/block-hash.ts';
import { FELT_PRIME, toFelt } from '../../../../schemas/felt.ts';
import { independentBlockHash } from '../../../support/block-hash.ts';
import { readRecordedBlock, whySkipped } from '../../../support/recorded-blocks.ts';

const felt = fc.bigInt({ min: 0n, max: FELT_PRIME - 1n }).map(toFelt);
const price = fc
  .tuple(fc.bigInt({ min: 0n, max: 2n ** 128n - 1n }), fc.bigInt({ min: 0n, max: 2n ** 128n - 1n }))
  .map(([wei, fri]) => ({ price_in_wei: String(wei), price_in_fri: String(fri) }));
const count = fc.nat({ max: 2 ** 31 - 1 });

const block: fc.Arbitrary<HashedBlock> = fc.record({
  height: count,
  parent_hash: felt,
  timestamp: count,
  sequencer_address: felt,
  starknet_version: fc.constantFrom('0.13.2', '0.13.2.1', '0.13.3', '0.13.4', '0.13.6', '0.14.1', '1.0.0'),
  transaction_count: count,
  event_count: count,
  header: fc.record({
    new_root: felt,
    state_diff_length: count,
    l1_da_mode: fc.constantFrom('BLOB', 'CALLDATA'),
    l1_gas_price: price,
    l1_data_gas_price: price,
    l2_gas_price: price,
    state_diff_commitment: felt,
    transaction_commitment: felt,
    event_commitment: felt,
    receipt_commitment: felt,
  }),
});

test('hashes a header of any version as starknet.js does', () => {
  fc.assert(
    fc.property(block, (one) => {
      expect(BigInt(blockHash(one) ?? -1)).toBe(independentBlockHash(one));
    }),
    { numRuns: 100 },
  );
});

const [sample] = fc.sample(block, { numRuns: 1, seed: 1 });
if (sample?.header === undefined) throw new Error('no sample');
const [whole, header] = [{ ...sample, starknet_version: '0.14.1' }, sample.header];

test.each([
  ['it is older than 0.13.2', { ...whole, starknet_version: '0.13.1' }],
  ['it has no version', { ...whole, starknet_version: '' }],
  ['its version does not fit into a felt', { ...whole, starknet_version: `0.14.1.${'1'.repeat(32)}` }],
  ['the node does not report the header', { ...whole, header: undefined }],
  ['the node does not report the counts', { ...whole, transaction_count: null }],
  ['the price of L2 gas is not known', { ...whole, header: { ...header, l2_gas_price: null } }],
])('computes no hash of a block where %s', (_what, one) => {
  expect(blockHash(one)).toBeNull();
});

test('needs no price of L2 gas before 0.13.4', () => {
  const old = { ...whole, starknet_version: '0.13.3' };
  expect(blockHash({ ...old, header: { ...header, l2_gas_price: null } })).toBe(blockHash(old));
});

describe.skipIf(whySkipped !== '')(`${whySkipped}a recorded block`, () => {
  const hashOf = (given: unknown) => blockHash(parseBlockWithReceipts(given, 1).body);

  test('has the hash of its header', () => {
    const given = readRecordedBlock();
    expect(hashOf(given)).toBe(parseBlockWithReceipts(given, 1).body.hash);
  });

  const other = (value: unknown): unknown => {
    if (value === 'BLOB') return 'CALLDATA';
    if (typeof value === 'number') return value + 1;
    return value === '0.14.1' ? '0.14.2' : `0x${(BigInt(String(value)) + 1n).toString(16)}`;
  };
  const prices = ['l1_gas_price', 'l1_data_gas_price', 'l2_gas_price'].flatMap((name) => [
    [name, 'price_in_wei'],
    [name, 'price_in_fri'],
  ]);

  test.each([
    ...[
      'parent_hash',
      'block_number',
      'new_root',
      'timestamp',
      'sequencer_address',
      'l1_da_mode',
      'starknet_version',
      'transaction_commitment',
      'event_commitment',
      'receipt_commitment',
      'state_diff_commitment',
      'state_diff_length',
    ].map((name) => [name]),
    ...prices,
  ])('has another hash with another %s %s', (name = '', part = '') => {
    const given = readRecordedBlock();
    const value = given[name];
    given[name] = part === '' ? other(value) : { ...value, [part]: other(value[part]) };
    const hash = hashOf(given);
    expect(hash).toMatch(/^0x/);
    expect(hash).not.toBe(hashOf(readRecordedBlock()));
  });

  test('has another hash with other counts', () => {
    const { body } = parseBlockWithReceipts(readRecordedBlock(), 1);
    const hashes = [body, { ...body, transaction_count: 4 }, { ...body, event_count: 4 }].map(blockHash);
    expect(new Set(hashes).size).toBe(3);
  });
});
