import { expect, test, vi } from 'vitest';

import { createLogger } from '../../../../infra/log.ts';
import { REQUEST_TTL_MS, readRequests } from '../../../../pipeline/observe/observer.ts';
import { toFelt } from '../../../../schemas/felt.ts';

const NOW = 1_000_000;
const token = toFelt(1n);

const batchOf = (...requestedAt: number[]) => ({
  topic: 'requests',
  partition: 0,
  highWatermark: requestedAt.length,
  messages: requestedAt.map((at, offset) => ({
    topic: 'requests',
    partition: 0,
    offset,
    key: token,
    timestamp: at,
    value: Buffer.from(JSON.stringify({ type: 'price.requested', v: 1, token, requested_at: at })),
  })),
});

function read(...requestedAt: number[]) {
  const log = createLogger('test', 'silent');
  const warn = vi.spyOn(log, 'warn');
  const requests = readRequests({ now: () => NOW, log }, batchOf(...requestedAt), 'price.requested');
  return { requests: requests.map(({ requested_at: at }) => at), warnings: warn.mock.calls };
}

test('requests that clients may still wait for are read, without a warning', () => {
  expect(read(NOW - REQUEST_TTL_MS + 1, NOW + 5000)).toEqual({
    requests: [NOW - REQUEST_TTL_MS + 1, NOW + 5000],
    warnings: [],
  });
});

test('old requests are dropped with one warning, as the clock of the API may be behind', () => {
  const { requests, warnings } = read(NOW - REQUEST_TTL_MS, NOW, NOW - 3 * REQUEST_TTL_MS);
  expect(requests).toEqual([NOW]);
  expect(warnings).toEqual([
    [
      { topic: 'requests', partition: 0, type: 'price.requested', dropped: 2 },
      expect.stringContaining('old requests dropped'),
    ],
  ]);
});
