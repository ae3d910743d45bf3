import { expect, it, vi } from 'vitest';

import { createPendingRequests } from '../../../../pipeline/observe/pending.ts';
import { toFelt } from '../../../../schemas/felt.ts';
import type { Felt } from '../../../../schemas/felt.ts';

interface Request {
  readonly account: Felt;
  readonly token: Felt;
  readonly requestedAt: number;
  readonly caller?: string;
}

const token = toFelt(7n);
const pair = (account: bigint, requestedAt: number) => ({ account: toFelt(account), token, requestedAt });
const create = (maxPerCaller = 100) => {
  const [onExpired, onDropped] = [vi.fn(), vi.fn()];
  const pending = createPendingRequests<Request>({
    keyOf: (request) => `${request.account}:${request.token}`,
    ttlMs: 1000,
    maxPerCaller,
    onExpired,
    onDropped,
  });
  return {
    pending,
    expired: () => onExpired.mock.calls.length,
    dropped: () => onDropped.mock.calls.length,
    add: (caller: string, ...accounts: bigint[]) => {
      for (const account of accounts) pending.add({ ...pair(account, 50), caller }, 100);
    },
    take: (limit: number) => pending.take(limit, 100).map(({ account }) => BigInt(account)),
  };
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

it('does not expire a request with the failing one that it joins, and reads it no earlier', () => {
  const { pending, expired } = create();
  pending.add(pair(1n, 50), 100);
  for (const read of pending.take(10, 100)) pending.end(read, 1150);
  pending.add(pair(1n, 70), 1050);
  expect(pending.take(10, 1149)).toEqual([]);
  const [read] = pending.take(10, 1200);
  expect(read).toMatchObject({ requestedAt: 70, receivedAt: 1050 });
  if (read !== undefined) pending.end(read, 2000);
  expect(pending.take(10, 2051)).toEqual([]);
  expect([expired(), pending.size()]).toEqual([1, 0]);
});

it('takes a pair that waits for its retry when the clock was set back', () => {
  const { pending } = create();
  pending.add(pair(1n, 50), 900_000);
  for (const read of pending.take(10, 900_000)) pending.end(read, 900_500);
  pending.add(pair(1n, 60), 100);
  expect(pending.take(10, 100)).toMatchObject([{ requestedAt: 60 }]);
});

it('takes one pair of each caller in turn, and goes on with the caller whose turn is next', () => {
  const { add, take } = create();
  add('a', 1n, 2n, 3n, 4n, 5n);
  add('b', 11n, 12n);
  add('c', 21n);
  expect(take(2)).toEqual([1n, 11n]);
  expect(take(3)).toEqual([21n, 2n, 12n]);
  expect(take(10)).toEqual([3n, 4n, 5n]);
});

it('takes a pair that several callers wait for once, at the first of their turns', () => {
  const { pending, add, take } = create();
  add('a', 1n, 2n, 3n, 7n);
  add('b', 7n);
  expect(take(2)).toEqual([1n, 7n]);
  expect(take(10)).toEqual([2n, 3n]);
  expect(pending.take(10, 200)).toEqual([]);
});

it('drops requests of a caller that has too many waiting, and none of another', () => {
  const { add, take, dropped } = create(2);
  add('a', 1n, 2n, 3n, 1n);
  add('b', 3n);
  expect(dropped()).toBe(1);
  expect(take(10)).toEqual([1n, 3n, 2n]);
  add('a', 4n);
  expect([dropped(), take(10)]).toEqual([1, [4n]]);
});
