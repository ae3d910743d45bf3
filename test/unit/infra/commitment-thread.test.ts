import { afterAll, expect, test } from 'vitest';

import { startCommitmentThread } from '../../../infra/commitment-thread.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { makeBlock, transferEvent } from '../../support/chain-messages.ts';
import { independentCommitment, independentRoot } from '../../support/event-commitment.ts';

const felt = (value: number) => toFelt(BigInt(value));
const { transactions } = makeBlock({
  height: 5,
  transactions: [{ events: [transferEvent(felt(9), felt(1), felt(2), 3n)] }, { events: [] }],
});
const details = transactions.map(() => ({
  signature: [felt(1), felt(2)],
  messages: [],
  revertReason: null,
  l1Gas: 3,
  l1DataGas: null,
}));
const version = '0.14.1';

const thread = startCommitmentThread();
afterAll(() => thread.close());

test('computes commitments beside each other, and none without all that it covers', async () => {
  const [events, signed, receipts] = await Promise.all([
    thread.compute({ of: 'events', transactions }),
    thread.compute({ of: 'transactions', version, transactions, details }),
    thread.compute({ of: 'receipts', version, transactions, details }),
  ]);
  expect(BigInt(events ?? 0)).toBe(independentCommitment(transactions));
  const leaves = transactions.map(({ hash }) => [hash, felt(1), felt(2)]);
  expect(BigInt(signed ?? 0)).toBe(independentRoot(leaves));
  expect(receipts).toBeNull();
});

test('rejects for what cannot be hashed, and computes the next', async () => {
  const broken = { of: 'events', transactions: [{ hash: felt(1), events: null }] };
  await expect(thread.compute(broken as never)).rejects.toThrow();
  expect(await thread.compute({ of: 'events', transactions: [] })).toBe(felt(0));
});

test('rejects what it has not computed when it is closed, and what is asked for later', async () => {
  const other = startCommitmentThread();
  const computing = other.compute({ of: 'events', transactions });
  const rejected = expect(computing).rejects.toThrow();
  await other.close();
  await rejected;
  await expect(other.compute({ of: 'events', transactions: [] })).rejects.toThrow('closed');
});
