import { afterEach, expect, test, vi } from 'vitest';

import { createEventTrees } from '../../../../api/transfers/event-trees.ts';
import * as commitment from '../../../../schemas/commitment/events.ts';
import { ZERO_FELT, toFelt } from '../../../../schemas/felt.ts';
import { busyBlock } from '../../../support/chain-messages.ts';

const block = (number: number) => ({ hash: toFelt(BigInt(number)), version: '1' });
/** Three events a transaction. */
const transactionsOf = (events: number) => busyBlock(5, events / 3).transactions;
const never = new AbortController().signal;

afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

test('commits to the events as the ingester does', async () => {
  const transactions = transactionsOf(30);
  const tree = await createEventTrees().of(block(1), transactions, never);
  expect(tree.root).toBe(commitment.eventCommitment(transactions));
  expect((await createEventTrees().of(block(1), [], never)).root).toBe(ZERO_FELT);
});

/** Makes each event take a millisecond to hash, and counts them. */
function hashSlowly(onEvent: (hashed: number) => void = () => {}): void {
  vi.useFakeTimers({ toFake: ['performance'] });
  const { hashEvents } = commitment;
  vi.spyOn(commitment, 'hashEvents').mockImplementation(function* (transactions) {
    const work = hashEvents(transactions);
    for (let hashed = 1; ; hashed += 1) {
      const { done, value } = work.next();
      if (done === true) return value;
      vi.advanceTimersByTime(1);
      onEvent(hashed);
      yield;
    }
  });
}

test('lets other work run every few milliseconds while it hashes a block', async () => {
  let turns = 0;
  const turnsByEvent: number[] = [];
  hashSlowly(() => turnsByEvent.push(turns));
  const count = (): void => {
    turns += 1;
    turning = setImmediate(count);
  };
  let turning = setImmediate(count);
  await createEventTrees().of(block(1), transactionsOf(300), never);
  clearImmediate(turning);
  const slices = Map.groupBy(turnsByEvent, (turn) => turn).values();
  expect(Math.max(...slices.map(({ length }) => length))).toBeLessThanOrEqual(10);
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
  let last = 0;
  hashSlowly((hashed) => {
    last = hashed;
    if (hashed === 20) gone.abort(new Error('gone'));
  });
  const tree = createEventTrees().of(block(1), transactionsOf(300), gone.signal);
  await expect(tree).rejects.toThrow('gone');
  expect(last).toBeLessThanOrEqual(30);
});
