import RequestQueue from 'kafkajs/src/network/requestQueue/index.js';
import type { InternalLogger } from 'kafkajs/src/network/connectionPool.js';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import '../../../../infra/kafka/kafkajs-timers.ts';

const silent: InternalLogger = {
  namespace: () => silent,
  debug() {},
  info() {},
  warn() {},
  error() {},
};

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const queueOf = (isConnected = (): boolean => true): RequestQueue =>
  new RequestQueue({
    maxInFlightRequests: null,
    requestTimeout: 30_000,
    enforceRequestTimeout: true,
    clientId: 'test',
    broker: 'b:1',
    logger: silent,
    isConnected,
  });

/** Sends a request, and returns how it ends. */
function send(queue: RequestQueue, correlationId: number) {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  promise.catch(() => {});
  const sendRequest = vi.fn<() => void>();
  queue.push({
    entry: Object.assign({ correlationId, resolve, reject }, { apiName: 'Fetch', apiKey: 1, apiVersion: 11 }),
    expectResponse: true,
    sendRequest,
  });
  return { answer: promise, sendRequest };
}

test('sets no timer for a connection without postponed requests', async () => {
  const queue = queueOf();
  const { answer, sendRequest } = send(queue, 1);
  expect(sendRequest).toHaveBeenCalledOnce();
  queue.fulfillRequest({ correlationId: 1, payload: Buffer.alloc(0), size: 0 });
  await answer;
  expect(vi.getTimerCount()).toBe(0);
});

test('sends a request that the broker has asked to postpone', () => {
  const queue = queueOf();
  queue.maybeThrottle(500);
  const { sendRequest } = send(queue, 1);
  expect(sendRequest).not.toHaveBeenCalled();
  vi.advanceTimersByTime(600);
  expect(sendRequest).toHaveBeenCalledOnce();
  expect(vi.getTimerCount()).toBe(0);
});

test('fails a request that is not answered within its timeout', async () => {
  const queue = queueOf();
  queue.scheduleRequestTimeoutCheck();
  const { answer } = send(queue, 1);
  vi.advanceTimersByTime(29_000);
  expect(queue.inflight.size).toBe(1);
  vi.advanceTimersByTime(3000);
  await expect(answer).rejects.toThrow('timed out');
  queue.destroy();
});

test('looks for timed out requests of all connections with one timer, until they are closed', async () => {
  let isConnected = true;
  const [first, second] = [queueOf(), queueOf(() => isConnected)];
  for (const queue of [first, second]) queue.scheduleRequestTimeoutCheck();
  expect(vi.getTimerCount()).toBe(1);
  const answers = [first, second].map((queue) => send(queue, 1).answer);
  vi.advanceTimersByTime(32_000);
  for (const answer of answers) await expect(answer).rejects.toThrow('timed out');

  first.destroy();
  expect(vi.getTimerCount()).toBe(1);
  isConnected = false;
  vi.advanceTimersByTime(1000);
  expect(vi.getTimerCount()).toBe(0);
});
