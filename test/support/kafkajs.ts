import type { InternalLogger } from 'kafkajs/src/network/connectionPool.js';
import type RequestQueue from 'kafkajs/src/network/requestQueue/index.js';
import { vi } from 'vitest';

export const silent: InternalLogger = {
  namespace: () => silent,
  debug() {},
  info() {},
  warn() {},
  error() {},
};

/** Sends a request, and returns how it ends. */
export function send(queue: RequestQueue, correlationId: number, apiKey = 1) {
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
