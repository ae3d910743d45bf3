import { pino } from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import type { CallerKey } from '../../../../api/http/route.ts';
import { createOpenStreams } from '../../../../api/stream/open-streams.ts';
import { createMetrics } from '../../../../infra/metrics.ts';

const key = (id: number, userId: number): CallerKey => ({
  id,
  userId,
  tokenHash: null,
  restrictions: '',
});
const session = (userId: number, tokenHash: string): CallerKey => ({ id: null, userId, tokenHash });

let ended: readonly CallerKey[] = [];
const open = () =>
  createOpenStreams({
    perCaller: 2,
    endedOf: async (callers) => callers.filter((caller) => ended.includes(caller)),
    log: pino({ level: 'silent' }),
    metrics: createMetrics('api'),
  });

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
