import { Socket } from 'node:net';

import Connection from 'kafkajs/src/network/connection.js';
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
function send(queue: RequestQueue, correlationId: number, apiKey = 1) {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  promise.catch(() => {});
  const sendRequest = vi.fn<() => void>();
  queue.push({
    entry: Object.assign({ correlationId, resolve, reject }, { apiName: 'Fetch', apiKey, apiVersion: 11 }),
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

/** A connection to a broker that accepts it, but does not answer. */
const connectionTo = (host: string): Connection =>
  new Connection({
    host,
    port: 1,
    connectionTimeout: 5000,
    requestTimeout: 30_000,
    logger: silent,
    socketFactory({ onConnect }) {
      process.nextTick(onConnect);
      return new Socket();
    },
  });

test.each([
  ['Fetch', 1, 30_000],
  ['Metadata', 3, 10_000],
])('closes all connections to a broker that does not answer %s within its timeout', async (_, apiKey, ms) => {
  const host = `silent-${apiKey}`;
  const [busy, idle, other] = [connectionTo(host), connectionTo(host), connectionTo('other')];
  for (const connection of [busy, idle, other]) await connection.connect();
  const { answer } = send(busy.requestQueue, 1, apiKey);
  vi.advanceTimersByTime(ms - 1000);
  expect(busy.requestQueue.inflight.size).toBe(1);
  vi.advanceTimersByTime(3000);
  // kafkajs reads the metadata again after it.
  await expect(answer).rejects.toMatchObject({ name: 'KafkaJSConnectionError' });
  await vi.waitFor(() =>
    expect([busy, idle, other].map((one) => one.isConnected())).toEqual([false, false, true]),
  );

  await expect(busy.connect()).rejects.toMatchObject({ name: 'KafkaJSConnectionError' });
  vi.advanceTimersByTime(5000);
  expect(await busy.connect()).toBe(true);
  for (const { requestQueue } of [busy, idle, other]) requestQueue.destroy();
  expect(vi.getTimerCount()).toBe(0);
});

test('looks for timed out requests of all connections with one timer, until they are closed', async () => {
  let isConnected = true;
  const [first, second] = [queueOf(), queueOf(() => isConnected)];
  for (const queue of [first, second]) queue.scheduleRequestTimeoutCheck();
  expect(vi.getTimerCount()).toBe(1);

  first.destroy();
  expect(vi.getTimerCount()).toBe(1);
  isConnected = false;
  vi.advanceTimersByTime(1001);
  expect(vi.getTimerCount()).toBe(0);
});
