import { expect, it } from 'vitest';

import { createPendingReads } from '../../../../../pipeline/observe/balances/pending.ts';
import { toFelt } from '../../../../../schemas/felt.ts';

const token = toFelt(7n);
const pair = (account: bigint, requestedAt: number) => ({ account: toFelt(account), token, requestedAt });
const create = () => {
  let expired = 0;
  const pending = createPendingReads({ ttlMs: 1000, onExpired: () => (expired += 1) });
  return { pending, expired: () => expired };
};

it('answers earlier requests with one read, and requests during the read with another', () => {
  const { pending } = create();
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
  for (const read of batch) pending.end(read, null);
  expect(pending.take(10, 150)).toMatchObject([{ requestedAt: 60 }]);
});

it('retries an unread pair for its newest request until that expires', () => {
  const { pending, expired } = create();
  pending.add(pair(1n, 50), 100);
  const [first] = pending.take(10, 100);
  pending.add(pair(1n, 70), 150);
  if (first !== undefined) pending.end(first, 400);
  expect(pending.take(10, 399)).toEqual([]);
  const [second] = pending.take(10, 400);
  expect(second).toMatchObject({ requestedAt: 70, receivedAt: 150 });
  if (second !== undefined) pending.end(second, 900);
  expect(pending.take(10, 1151)).toEqual([]);
  expect([expired(), pending.size()]).toEqual([1, 0]);
});
