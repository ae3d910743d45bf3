import { hash } from 'starknet';
import { describe, expect, test } from 'vitest';

import { parseBlockWithReceipts } from '../../../../pipeline/node/parse.ts';
import { receiptCommitment, transactionCommitment } from '../../../../schemas/commitment/transactions.ts';
import type { TransactionDetails } from '../../../../schemas/commitment/transactions.ts';
import { parseFelt, toFelt } from '../../../../schemas/felt.ts';
import { independentRoot } from '../../../support/event-commitment.ts';
import { readRecordedBlock, whySkipped } from '../../../support/recorded-blocks.ts';

const felt = (value: number) => toFelt(BigInt(value));
const plain: TransactionDetails = {
  signature: [felt(1), felt(2)],
  messages: [],
  revertReason: null,
  l1Gas: 3,
  l1DataGas: 4,
};
const transactionOf = (index: number, reverted = false) => ({
  hash: felt(1000 + index),
  fee: String(10n ** 20n + BigInt(index)),
  execution_status: reverted ? ('REVERTED' as const) : ('SUCCEEDED' as const),
});

test('commits to each transaction hash with its signature', () => {
  const signatures = [[felt(1)], [felt(1), felt(2)], [felt(3), felt(4), felt(5)]];
  const transactions = signatures.map((_, index) => transactionOf(index));
  const details = signatures.map((signature) => ({ ...plain, signature }));
  const leaves = signatures.map((signature, index) => [felt(1000 + index), ...signature]);
  expect(BigInt(transactionCommitment('0.14.1', transactions, details) ?? 0)).toBe(independentRoot(leaves));
});

test.each([
  ['0.13.2', [0]],
  ['0.13.2.1', [0]],
  ['0.13.3', [0]],
  ['0.13.4', []],
  ['0.14.1', []],
])('Starknet %s hashes %j for no signature', (version, padding) => {
  const found = transactionCommitment(version, [transactionOf(0)], [{ ...plain, signature: [] }]);
  expect(BigInt(found ?? 0)).toBe(independentRoot([[felt(1000), ...padding]]));
});

test('commits to the fee, the messages, the revert reason and the L1 gas of each receipt', () => {
  const messages = [
    { from_address: felt(7), to_address: felt(8), payload: [felt(9), felt(10)] },
    { from_address: felt(11), to_address: felt(12), payload: [] },
  ];
  const transactions = [transactionOf(0), transactionOf(1, true), transactionOf(2, true)];
  const details = [
    { ...plain, messages, revertReason: 'of no reverted transaction' },
    { ...plain, revertReason: 'Überlauf' },
    { ...plain, revertReason: '' },
  ];
  const none = hash.computePoseidonHashOnElements([0]);
  const sent = hash.computePoseidonHashOnElements([2, 7, 8, 2, 9, 10, 11, 12, 0]);
  const leaf = (index: number, sentHash: string, reason: bigint) => [
    felt(1000 + index),
    10n ** 20n + BigInt(index),
    sentHash,
    reason,
    0,
    3,
    4,
  ];
  const leaves = [
    leaf(0, sent, 0n),
    leaf(1, none, hash.starknetKeccak('Überlauf')),
    leaf(2, none, hash.starknetKeccak('')),
  ];
  expect(BigInt(receiptCommitment(transactions, details) ?? 0)).toBe(independentRoot(leaves));
});

test.each(['messages', 'l1Gas', 'l1DataGas', 'revertReason'] as const)(
  'computes no commitment to receipts without %s',
  (missing) => {
    const details = { ...plain, revertReason: 'why', [missing]: null };
    expect(receiptCommitment([transactionOf(0, true)], [details])).toBeNull();
    expect(transactionCommitment('0.14.1', [transactionOf(0, true)], [details])).not.toBeNull();
  },
);

test('computes no commitment to transactions without a signature field', () => {
  expect(transactionCommitment('0.14.1', [transactionOf(0)], [{ ...plain, signature: null }])).toBeNull();
});

describe.skipIf(whySkipped !== '')(`${whySkipped}a recorded block`, () => {
  test('has the commitments of its header', () => {
    const given = readRecordedBlock();
    const { body, details } = parseBlockWithReceipts(given, 1);
    const { starknet_version: version, transactions } = body;
    const found = [
      transactionCommitment(version, transactions, details?.() ?? []),
      receiptCommitment(transactions, details?.() ?? []),
    ];
    expect(found).toEqual([given.transaction_commitment, given.receipt_commitment].map(parseFelt));
  });
});
