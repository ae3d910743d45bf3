import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';

import { describe, expect, test } from 'vitest';

import { parseBlockWithReceipts } from '../../../../pipeline/node/parse.ts';
import { eventCommitment } from '../../../../schemas/commitment/events.ts';
import { parseFelt, toFelt } from '../../../../schemas/felt.ts';
import type { Felt } from '../../../../schemas/felt.ts';
import { independentCommitment } from '../../../support/event-commitment.ts';
import type { EmittingTransaction } from '../../../support/event-commitment.ts';

const felt = (value: number) => toFelt(BigInt(value));

/** Transactions of 0 to 3 events each, `events` in all, of differing keys and data. */
function transactionsWith(events: number): EmittingTransaction<Felt>[] {
  const transactions: EmittingTransaction<Felt>[] = [];
  for (let index = 0; index < events;) {
    const size = Math.min(transactions.length % 4, events - index);
    transactions.push({
      hash: felt(1000 + transactions.length),
      events: Array.from({ length: size }, (_, at) => ({
        from_address: felt(5),
        keys: Array.from({ length: (index + at) % 5 }, (_key, key) => felt(key + index)),
        data: Array.from({ length: (index + at) % 3 }, (_item, item) => felt(item)),
      })),
    });
    index += size;
  }
  return transactions;
}

test.each([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 21, 33])(
  'commits to %i events as a Patricia tree over their indexes does',
  (events) => {
    const transactions = transactionsWith(events);
    expect(BigInt(eventCommitment(transactions))).toBe(independentCommitment(transactions));
  },
);

const file = resolve(import.meta.dirname, '../../../../../shared/blocks/sepolia-3100000.json');
const skipped = existsSync(file)
  ? ''
  : 'SKIPPED: ../shared/blocks is absent, recorded block was not checked: ';

describe.skipIf(skipped !== '')(`${skipped}a recorded block`, () => {
  const recorded = () => {
    const block = JSON.parse(readFileSync(file, 'utf8'));
    return {
      transactions: parseBlockWithReceipts(block, 1).body.transactions,
      header: block.event_commitment,
    };
  };

  test('has the commitment of its header', () => {
    const { transactions, header } = recorded();
    expect(eventCommitment(transactions)).toBe(parseFelt(header));
  });

  test('has another commitment when its events are in another order', () => {
    const { transactions, header } = recorded();
    const events = transactions.flatMap((transaction) => transaction.events);
    expect(events.length).toBe(3);
    const swapped = transactions.toReversed();
    expect(eventCommitment(swapped)).not.toBe(parseFelt(header));
  });
});
