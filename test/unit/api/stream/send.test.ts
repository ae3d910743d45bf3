import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { eventStream, lines, sendStream } from '../../../../api/stream/send.ts';
import type { SendOptions } from '../../../../api/stream/send.ts';
import type { Follower } from '../../../../api/stream/follower.ts';
import type { EndReason } from '../../../../api/stream/open-streams.ts';
import type { Message } from '../../../../api/stream/messages.ts';
import { createLogger } from '../../../../infra/log.ts';
import { AppError } from '../../../../schemas/errors.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Has nothing, and never will. */
const quiet = {
  held: () => null,
  read: async () => [],
  wait: (ms, signal) =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      signal.addEventListener('abort', () => {
        clearTimeout(timer);
        resolve();
      });
    }),
  start: () => 's',
  end: (reason: EndReason) => endOf(reason, null),
} satisfies Follower;
const endOf: Follower['end'] = (reason) => ({ type: 'end', cursor: 'c', data: JSON.stringify({ reason }) });

const sendEvents = (follower: Follower, first: SendOptions['first'], disconnected: AbortSignal) =>
  sendStream({
    follower,
    first,
    stream: { ended: new AbortController().signal, release: () => {} },
    disconnected,
    format: eventStream,
    until: null,
    log: createLogger('test', 'silent'),
  });

it('sends a heartbeat every few seconds, also while a read waits for its place', async () => {
  const gone = new AbortController();
  const body = sendEvents({ ...quiet, read: () => new Promise(() => {}) }, null, gone.signal);
  let text = '';
  body.on('data', (bytes: Buffer) => (text += bytes.toString()));
  await vi.advanceTimersByTimeAsync(9999);
  expect(text).toBe('retry: 1000\n\n:\n\n');
  await vi.advanceTimersByTimeAsync(10_000);
  expect(text).toBe('retry: 1000\n\n:\n\n:\n\n:\n\n');
  gone.abort();
  await vi.advanceTimersByTimeAsync(5000);
  expect(body.destroyed).toBe(true);
});

/** Blocks without an end, one a read. */
const blocks: Follower = {
  ...quiet,
  read: async () => [{ type: 'block', cursor: 'b', data: JSON.stringify('x'.repeat(1000)) }],
};
const formats = [
  { name: 'events', format: eventStream, until: null },
  { name: 'NDJSON', format: lines, until: { messages: 10_000, waitMs: 60_000 } },
];

it.each(
  formats.flatMap((one) => (['limit', 'shutdown', 'slow'] as const).map((reason) => ({ ...one, reason }))),
)('ends $name with the reason $reason', async ({ format, until, reason }) => {
  const ended = new AbortController();
  const release = vi.fn();
  const body = sendStream({
    follower: reason === 'slow' ? blocks : quiet,
    first: null,
    stream: { ended: ended.signal, release },
    disconnected: new AbortController().signal,
    format,
    until,
    log: createLogger('test', 'silent'),
  });
  if (reason !== 'slow') ended.abort(reason satisfies EndReason);
  // Nothing is read meanwhile.
  await vi.advanceTimersByTimeAsync(21_000);
  let text = '';
  body.on('data', (bytes: Buffer) => (text += bytes.toString()));
  await vi.advanceTimersByTimeAsync(100);
  expect(text.endsWith(format.text(endOf(reason, null)))).toBe(true);
  expect(body.readableEnded).toBe(true);
  expect(release).toHaveBeenCalledTimes(1);
});

it('drops what a slow client has not read after half a minute', async () => {
  const release = vi.fn();
  const body = sendStream({
    follower: blocks,
    first: null,
    stream: { ended: new AbortController().signal, release },
    disconnected: new AbortController().signal,
    format: lines,
    until: { messages: 10_000, waitMs: 60_000 },
    log: createLogger('test', 'silent'),
  });
  await vi.advanceTimersByTimeAsync(49_000);
  expect(release).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(2000);
  expect([body.destroyed, release.mock.calls.length]).toEqual([true, 1]);
});

/** What is sent of NDJSON, and after how many seconds it ended. */
async function linesOf(
  follower: Follower,
  more: Partial<SendOptions> & { readonly messages?: number; readonly waitMs?: number } = {},
): Promise<{ text: string; seconds: number | null }> {
  const { messages = 10, waitMs = 3000, ...options } = more;
  const body = sendStream({
    follower,
    first: [],
    stream: { ended: new AbortController().signal, release: () => {} },
    disconnected: new AbortController().signal,
    format: lines,
    until: { messages, waitMs },
    log: createLogger('test', 'silent'),
    ...options,
  });
  let text = '';
  const began = performance.now();
  let seconds: number | null = null;
  body.on('data', (bytes: Buffer) => (text += bytes.toString()));
  body.on('end', () => (seconds = Math.round((performance.now() - began) / 1000)));
  await vi.advanceTimersByTimeAsync(60_000);
  body.destroy();
  return { text, seconds };
}
const message = (name: string): Message => ({ type: 'block', cursor: name, data: '{}' });
const lineOf = (name: string): string => lines.text(message(name));

it('sends a heartbeat on a stream without messages', async () => {
  const gone = new AbortController();
  const body = sendEvents(quiet, [], gone.signal);
  let text = '';
  body.on('data', (bytes: Buffer) => (text += bytes.toString()));
  await vi.advanceTimersByTimeAsync(100);
  // Where the client has no cursor, it gets one that no page sees.
  const opening = 'retry: 1000\nid: s\n\n';
  expect(text).toBe(opening);
  for (let tens = 1; tens < 5; tens += 1) {
    await vi.advanceTimersByTimeAsync(10_000);
    expect(text.slice(opening.length).length).toBeGreaterThanOrEqual(':\n\n'.length * tens);
  }
  expect(text.slice(opening.length).replaceAll(':\n\n', '')).toBe('');
  gone.abort();
  await vi.advanceTimersByTimeAsync(100);
});

it('waits so long for a first line, also while a read waits for its place, and no longer', async () => {
  expect(await linesOf(quiet)).toEqual({ text: '', seconds: 3 });
  expect(await linesOf(quiet, { waitMs: 0 })).toEqual({ text: '', seconds: 0 });
  const queued: Follower = { ...quiet, read: () => new Promise(() => {}) };
  expect(await linesOf(queued)).toEqual({ text: '', seconds: 3 });
  const unreadable: Follower = {
    ...quiet,
    read: () => Promise.reject(new AppError('STORE_UNAVAILABLE', 'gone', { retryable: true })),
  };
  expect(await linesOf(unreadable)).toEqual({ text: '', seconds: 3 });
});

it('ends when no more lines are there, and goes on beyond the wait while they are', async () => {
  const reads = [['a'], ['b', 'c'], []];
  const slow: Follower = {
    ...quiet,
    async read() {
      await new Promise((resolve) => setTimeout(resolve, 6000));
      return (reads.shift() ?? []).map(message);
    },
  };
  const first = [message('0')];
  expect(await linesOf(slow, { first })).toEqual({
    text: ['0', 'a', 'b', 'c'].map(lineOf).join(''),
    seconds: 18,
  });
});

it('sends at most as many lines as asked for, also when the service stops', async () => {
  const first = ['a', 'b', 'c'].map(message);
  const ended = new AbortController();
  const stream = { ended: ended.signal, release: () => {} };
  expect(await linesOf(quiet, { first, messages: 2 })).toEqual({
    text: lineOf('a') + lineOf('b'),
    seconds: 0,
  });
  const stopping: Follower = { ...quiet, held: () => (ended.abort('shutdown'), [message('d')]) };
  const options = { first: null, stream, messages: 1 };
  expect((await linesOf(stopping, options)).text).toBe(lineOf('d'));
});
