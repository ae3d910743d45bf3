import { pino } from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import type { CallerKey } from '../../../../api/http/route.ts';
import { createOpenStreams } from '../../../../api/stream/open-streams.ts';
import type { OpenStream } from '../../../../api/stream/open-streams.ts';
import { createMetrics } from '../../../../infra/metrics.ts';

const key = (id: number, userId: number): CallerKey => ({
  id,
  userId,
  tokenHash: null,
  restrictions: '',
});
const session = (userId: number, tokenHash: string): CallerKey => ({ id: null, userId, tokenHash });

let ended: readonly CallerKey[] = [];
const optionsOf = (perCaller: number, perUser = 100) => ({
  perCaller,
  perUser,
  endedOf: async (callers: readonly CallerKey[]) => callers.filter((caller) => ended.includes(caller)),
  log: pino({ level: 'silent' }),
  metrics: createMetrics('api'),
});
const open = () => createOpenStreams(optionsOf(2));

beforeEach(() => {
  vi.useFakeTimers();
  ended = [];
});
afterEach(() => {
  vi.useRealTimers();
});

test('a key has its own limit of streams, and all sessions of a user share one', () => {
  const streams = open();
  const first = streams.open(key(7, 7));
  streams.open(key(7, 7));
  expect(() => streams.open(key(7, 7))).toThrow('throttled');
  // Another key of the user, and the user's sessions, whose id is the number of the key.
  streams.open(key(8, 7));
  streams.open(session(7, 'a'));
  streams.open(session(7, 'b'));
  expect(() => streams.open(session(7, 'c'))).toThrow('throttled');
  streams.open(session(8, 'd'));
  first.release();
  streams.open(key(7, 7));
});

test('all keys and sessions of a user share a limit of streams', () => {
  const streams = createOpenStreams(optionsOf(2, 3));
  const first = streams.open(key(1, 7));
  streams.open(key(2, 7));
  streams.open(session(7, 'a'));
  expect(() => streams.open(key(3, 7))).toThrow('throttled');
  streams.open(key(4, 8));
  first.release();
  streams.open(key(3, 7));
});

test('few streams of all keys of a user read history at a time', async () => {
  const streams = createOpenStreams(optionsOf(100));
  const first = Array.from({ length: 8 }, () => streams.open(key(1, 1)));
  await Promise.all(first.map((stream) => stream.enterHistory()));
  let hasEntered = false;
  void streams
    .open(key(2, 1))
    .enterHistory()
    .then(() => (hasEntered = true));
  await vi.advanceTimersByTimeAsync(0);
  expect(hasEntered).toBe(false);
  first[0]?.leaveHistory();
  await vi.advanceTimersByTimeAsync(0);
  expect(hasEntered).toBe(true);
});

test('streams of a session that has ended are ended, and no others', async () => {
  const streams = open();
  const [gone, kept, other] = [session(7, 'gone'), session(7, 'kept'), key(1, 7)];
  const [a, b, c] = [streams.open(gone), streams.open(kept), streams.open(other)];
  await vi.advanceTimersByTimeAsync(15_000);
  expect([a, b, c].map((stream) => stream.ended.aborted)).toEqual([false, false, false]);
  ended = [gone];
  await vi.advanceTimersByTimeAsync(15_000);
  expect([a, b, c].map((stream) => stream.ended.aborted)).toEqual([true, false, false]);
  expect(a.ended.reason).toBe('limit');
});

test('few streams of a caller read history at a time, in the order in which they came', async () => {
  const streams = createOpenStreams(optionsOf(100));
  const entered: number[] = [];
  const enter = (stream: OpenStream, name: number) =>
    void stream.enterHistory().then(() => entered.push(name));
  const all = Array.from({ length: 12 }, () => streams.open(key(1, 1)));
  for (const [name, stream] of all.entries()) enter(stream, name);
  const other = streams.open(key(2, 2));
  enter(other, 100);
  await vi.advanceTimersByTimeAsync(0);
  expect(entered).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 100]);
  // One that leaves while it waits takes no place; one that has a place gives way to those that wait before it reads on.
  all[8]?.release();
  all[5]?.leaveHistory();
  all[5]?.leaveHistory();
  enter(all[3] as OpenStream, 3);
  await vi.advanceTimersByTimeAsync(0);
  expect(entered).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 100, 9, 10]);
  all[2]?.release();
  all[4]?.release();
  await vi.advanceTimersByTimeAsync(0);
  expect(entered.slice(11)).toEqual([11, 3]);
  // It reads on at once where nobody waits.
  enter(all[3] as OpenStream, 3);
  await vi.advanceTimersByTimeAsync(0);
  expect(entered.slice(13)).toEqual([3]);
  // A read that goes on after its stream takes no place.
  enter(all[2] as OpenStream, 2);
  enter(all[5] as OpenStream, 5);
  for (const at of [0, 1, 3]) all[at]?.release();
  await vi.advanceTimersByTimeAsync(0);
  expect(entered.slice(14)).toEqual([2, 5]);
  const more = Array.from({ length: 9 }, () => streams.open(key(1, 1)));
  for (const [at, stream] of more.entries()) enter(stream, 200 + at);
  await vi.advanceTimersByTimeAsync(0);
  // Of eight places, 5, 6, 7, 9, 10 and 11 have six.
  expect(entered.slice(16)).toEqual([200, 201]);
});
