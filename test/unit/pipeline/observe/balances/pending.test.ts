import { expect, it } from 'vitest';

import { createPending } from '../../../../../pipeline/observe/balances/pending.ts';
import { toFelt } from '../../../../../schemas/felt.ts';

const token = toFelt(7n);
const pair = (account: bigint, requestedAt: number) => ({ account: toFelt(account), token, requestedAt });
const queue = () => {
  let givenUp = 0;
  const pending = createPending({ patienceMs: 1000, onGivenUp: () => (givenUp += 1) });
  return { pending, givenUp: () => givenUp };
};

it('reads a pair once for all who asked before, and once more for those who asked while it was read', () => {
  const { pending } = queue();
  pending.add(pair(1n, 50), 100);
  pending.add(pair(2n, 10), 100);
  pending.add(pair(1n, 40), 110);
  const batch = pending.take(10, 120);
  expect(batch.map(({ account, requestedAt }) => [BigInt(account), requestedAt])).toEqual([
    [1n, 50],
    [2n, 10],
  ]);
  pending.add(pair(1n, 60), 130);
  expect(pending.take(10, 140)).toEqual([]);
  for (const one of batch) pending.end(one, null);
  expect(pending.take(10, 150)).toMatchObject([{ requestedAt: 60 }]);
});

it('tries a pair again that was not answered, for the newest who asked, until nobody can be waiting', () => {
  const { pending, givenUp } = queue();
  pending.add(pair(1n, 50), 100);
  const [first] = pending.take(10, 100);
  pending.add(pair(1n, 70), 150);
  if (first !== undefined) pending.end(first, 400);
  expect(pending.take(10, 399)).toEqual([]);
  const [second] = pending.take(10, 400);
  expect(second).toMatchObject({ requestedAt: 70, heardAt: 150 });
  if (second !== undefined) pending.end(second, 900);
  expect(pending.take(10, 1151)).toEqual([]);
  expect([givenUp(), pending.size()]).toEqual([1, 0]);
});
