import { hash } from 'starknet';
import { describe, expect, test } from 'vitest';

import { parseBlockWithReceipts } from '../../../../pipeline/node/parse.ts';
import { eventCommitment, hashEvents } from '../../../../schemas/commitment/events.ts';
import type { PathStep, Tree } from '../../../../schemas/commitment/tree.ts';
import { FELT_PRIME, parseFelt, toFelt } from '../../../../schemas/felt.ts';
import type { Felt } from '../../../../schemas/felt.ts';
import { independentCommitment } from '../../../support/event-commitment.ts';
import type { EmittingTransaction } from '../../../support/event-commitment.ts';
import { readRecordedBlock, whySkipped } from '../../../support/recorded-blocks.ts';

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

function treeOf(transactions: readonly EmittingTransaction<Felt>[]): Tree {
  const work = hashEvents(transactions);
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}

/** Follows a path by starknet.js, from the hash of an event. */
function rootOver(leaf: string, path: readonly PathStep[]): bigint {
  const root = path.reduce((node, step) => {
    if (step.kind === 'edge') {
      const child = hash.computePoseidonHash(node, step.bits);
      return `0x${((BigInt(child) + BigInt(step.length)) % FELT_PRIME).toString(16)}`;
    }
    const { side, sibling } = step;
    return side === 'left'
      ? hash.computePoseidonHash(node, sibling)
      : hash.computePoseidonHash(sibling, node);
  }, leaf);
  return BigInt(root);
}

test.each([1, 2, 3, 5, 8, 21])('leads from each of %i events to the root', (count) => {
  const transactions = transactionsWith(count);
  const tree = treeOf(transactions);
  const events = transactions.flatMap(({ hash: transaction, events: own }) =>
    own.map((event) => ({ transaction, ...event })),
  );
  expect(tree.leaves).toBe(count);
  for (const [index, { from_address, transaction, keys, data }] of events.entries()) {
    const leaf = hash.computePoseidonHashOnElements([
      from_address,
      transaction,
      keys.length,
      ...keys,
      data.length,
      ...data,
    ]);
    const path = tree.pathOf(index);
    expect(rootOver(leaf, path)).toBe(BigInt(tree.root));
    expect(path.reduce((sum, step) => sum + (step.kind === 'edge' ? step.length : 1), 0)).toBe(64);
    // The sides and edges, from the root on, spell the index.
    const bits = path.toReversed().map((step) => {
      if (step.kind === 'edge') return BigInt(step.bits).toString(2).padStart(step.length, '0');
      return step.side === 'left' ? '0' : '1';
    });
    expect(BigInt(`0b${bits.join('')}`)).toBe(BigInt(index));
  }
  expect(() => tree.pathOf(count)).toThrow(RangeError);
});

describe.skipIf(whySkipped !== '')(`${whySkipped}a recorded block`, () => {
  const recorded = () => {
    const block = readRecordedBlock();
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
