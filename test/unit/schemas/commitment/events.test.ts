import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';

import { hash } from 'starknet';
import { describe, expect, test } from 'vitest';

import { parseBlockWithReceipts } from '../../../../pipeline/node/parse.ts';
import { eventCommitment } from '../../../../schemas/commitment/events.ts';
import { FELT_PRIME, parseFelt, toFelt } from '../../../../schemas/felt.ts';
import type { BlockTransaction } from '../../../../schemas/messages/chain-blocks.ts';

type Transactions = Pick<BlockTransaction, 'hash' | 'events'>[];

/** Root of a Patricia tree over any keys, a bit at a time, as the specification of the state tries has it. */
function genericRoot(leaves: ReadonlyMap<bigint, string>, height: number): string {
  const node = (keys: readonly bigint[], bits: number): { hash: string; path: bigint; length: number } => {
    const [only] = keys;
    if (bits === 0 && only !== undefined) return { hash: leaves.get(only) ?? '', path: 0n, length: 0 };
    const bit = 1n << BigInt(bits - 1);
    const sides = [
      keys.filter((key) => (key & bit) === 0n),
      keys.filter((key) => (key & bit) !== 0n),
    ] as const;
    const empty = sides.findIndex((side) => side.length === 0);
    if (empty === -1) {
      const [left, right] = sides.map((side) => finished(node(side, bits - 1)));
      return { hash: hash.computePoseidonHash(left ?? '', right ?? ''), path: 0n, length: 0 };
    }
    const child = node(keys, bits - 1);
    return {
      ...child,
      path: child.path + (empty === 0 ? 1n << BigInt(child.length) : 0n),
      length: child.length + 1,
    };
  };
  const finished = (of: { hash: string; path: bigint; length: number }): string =>
    of.length === 0
      ? of.hash
      : `0x${((BigInt(hash.computePoseidonHash(of.hash, of.path)) + BigInt(of.length)) % FELT_PRIME).toString(16)}`;
  return leaves.size === 0 ? '0x0' : finished(node([...leaves.keys()], height));
}

function independentCommitment(transactions: Transactions): bigint {
  const events = transactions.flatMap((transaction) =>
    transaction.events.map((event) => ({ transaction, event })),
  );
  const leaves = events.map(({ transaction, event: { from_address, keys, data } }, index) => {
    const parts = [from_address, transaction.hash, keys.length, ...keys, data.length, ...data];
    return [BigInt(index), hash.computePoseidonHashOnElements(parts)] as const;
  });
  return BigInt(genericRoot(new Map(leaves), 64));
}

const felt = (value: number) => toFelt(BigInt(value));

/** Transactions of 0 to 3 events each, `events` in all, of differing keys and data. */
function transactionsWith(events: number): Transactions {
  const transactions: Transactions = [];
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
