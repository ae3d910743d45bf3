import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { eventStream, lines, sendStream } from '../../../../api/stream/send.ts';
import type { EndReason, Follower } from '../../../../api/stream/follower.ts';
import { createLogger } from '../../../../infra/log.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const endOf: Follower['end'] = (reason) => ({ type: 'end', cursor: 'c', data: JSON.stringify({ reason }) });

it('sends a heartbeat every few seconds, also while a read waits for its place', async () => {
  const gone = new AbortController();
  const body = sendStream({
    follower: { held: () => null, read: () => new Promise(() => {}), wait: async () => {}, end: endOf },
    stream: { ended: new AbortController().signal, release: () => {} },
    disconnected: gone.signal,
    format: eventStream,
    until: null,
    log: createLogger('test', 'silent'),
  });
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
  held: () => null,
  read: async () => [{ type: 'block', cursor: 'b', data: JSON.stringify('x'.repeat(1000)) }],
  wait: async () => {},
  end: endOf,
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
    follower: reason === 'slow' ? blocks : { ...blocks, read: async () => [] },
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
