import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { eventStream, sendStream } from '../../../../api/stream/send.ts';
import type { Follower } from '../../../../api/stream/follower.ts';
import { createLogger } from '../../../../infra/log.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const endOf: Follower['end'] = (reason) => ({ type: 'end', cursor: 'c', data: JSON.stringify({ reason }) });

it('sends a heartbeat every few seconds, also while a read waits for its place', async () => {
  const gone = new AbortController();
  const body = sendStream({
    follower: { read: () => new Promise(() => {}), wait: async () => {}, end: endOf },
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
