import { setTimeout as sleep } from 'node:timers/promises';

import { expect, test, vi } from 'vitest';

import { createEventTrees } from '../../../../api/transfers/event-trees.ts';
import * as commitment from '../../../../schemas/commitment/events.ts';
import { ZERO_FELT, toFelt } from '../../../../schemas/felt.ts';
import { busyBlock } from '../../../support/chain-messages.ts';

const block = (number: number) => ({ hash: toFelt(BigInt(number)), version: '1' });
/** Three events a transaction. */
const transactionsOf = (events: number) => busyBlock(5, events / 3).transactions;
const never = new AbortController().signal;

test('commits to the events as the ingester does', async () => {
  const transactions = transactionsOf(30);
  const tree = await createEventTrees().of(block(1), transactions, never);
  expect(tree.root).toBe(commitment.eventCommitment(transactions));
  expect((await createEventTrees().of(block(1), [], never)).root).toBe(ZERO_FELT);
});

test('lets other work run while it hashes a large block', async () => {
  const transactions = transactionsOf(3000);
  const started = performance.now();
  let last = started;
  let longest = 0;
  const timer = setInterval(() => {
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }, 1);
  await createEventTrees().of(block(1), transactions, never);
  clearInterval(timer);
  const all = performance.now() - started;
  expect(all).toBeGreaterThan(50);
  // Not more than some slices, however slow the machine is.
  expect(longest).toBeLessThan(all / 3);
});

test('keeps the trees that were used last, up to a number of events', async () => {
  const hashed = vi.spyOn(commitment, 'hashEvents');
  const trees = createEventTrees({ maxEvents: 60 });
  const use = async (number: number, version = '1'): Promise<number> => {
    const before = hashed.mock.calls.length;
    await trees.of({ ...block(number), version }, transactionsOf(30), never);
    return hashed.mock.calls.length - before;
  };
  expect([await use(1), await use(2), await use(1), await use(2)]).toEqual([1, 1, 0, 0]);
  // The first was used before the second.
  expect([await use(3), await use(2), await use(1), await use(3)]).toEqual([1, 0, 1, 1]);
  // Other rows of a block are another tree.
  expect([await use(3, '2'), await use(3, '2')]).toEqual([1, 0]);
});

test('stops when the client has gone', async () => {
  const gone = new AbortController();
  const failing = expect(
    createEventTrees().of(block(1), transactionsOf(30_000), gone.signal),
  ).rejects.toThrow('gone');
  await sleep(20);
  const aborted = performance.now();
  gone.abort(new Error('gone'));
  await failing;
  expect(performance.now() - aborted).toBeLessThan(200);
});
