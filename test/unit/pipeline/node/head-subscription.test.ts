import { once } from 'node:events';
import type { AddressInfo } from 'node:net';

import { pino } from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { WebSocketServer } from 'ws';
import type { WebSocket } from 'ws';

import { headSubscriptions } from '../../../../pipeline/node/head-subscription.ts';
import type { HeadSubscription } from '../../../../pipeline/node/head-subscription.ts';

const ANNOUNCED = { jsonrpc: '2.0', method: 'starknet_subscriptionNewHeads', params: {} };
const CONFIRMED = { jsonrpc: '2.0', id: 1, result: 'one' };

let server: WebSocketServer;
let subscription: HeadSubscription;
let changes: number;
let requests: unknown[];
/** What the node answers to each request, in turn; then it confirms. */
let answers: (object | string)[];
let sockets: WebSocket[];
let logged: string[];

beforeEach(async () => {
  logged = [];
  changes = 0;
  requests = [];
  answers = [];
  sockets = [];
  server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  server.on('connection', (socket) => {
    sockets.push(socket);
    socket.on('message', (data: Buffer) => {
      requests.push(JSON.parse(data.toString('utf8')));
      send(socket, answers.shift() ?? CONFIRMED);
    });
  });
  await once(server, 'listening');
});

afterEach(() => {
  subscription.close();
  for (const socket of server.clients) socket.terminate();
  server.close();
});

function send(socket: WebSocket | undefined, message: object | string): void {
  socket?.send(typeof message === 'string' ? message : JSON.stringify(message));
}

function subscribe(): void {
  const { port } = server.address() as AddressInfo;
  const log = pino({ level: 'warn' }, { write: (line) => void logged.push(line) });
  subscription = headSubscriptions(`ws://127.0.0.1:${port}/ws/a1b2c3d4e5f6`, log)(() => (changes += 1));
}

async function live(): Promise<void> {
  await expect.poll(() => subscription.isLive()).toBe(true);
}

test('a confirmed subscription calls back for each head and each reorg', async () => {
  subscribe();
  expect(subscription.isLive()).toBe(false);
  await live();
  expect(requests).toEqual([{ jsonrpc: '2.0', id: 1, method: 'starknet_subscribeNewHeads', params: {} }]);
  expect(changes).toBe(0);
  send(sockets[0], ANNOUNCED);
  send(sockets[0], { ...ANNOUNCED, method: 'starknet_subscriptionReorg' });
  await expect.poll(() => changes).toBe(2);
});

test('ignores messages that announce no head', async () => {
  subscribe();
  await live();
  for (const text of [
    '{',
    '',
    'null',
    '[]',
    '1',
    '{"method":"starknet_subscriptionEvents"}',
    '{"method":{}}',
  ])
    send(sockets[0], text);
  send(sockets[0], ANNOUNCED);
  await expect.poll(() => changes).toBe(1);
  expect(sockets).toHaveLength(1);
});

test.each([
  [
    'refused',
    { jsonrpc: '2.0', id: 1, error: { code: -32601, message: 'Method not found' } },
    'subscription refused: starknet_subscribeNewHeads: Method not found (-32601)',
  ],
  [
    'answered with an error of no request',
    { jsonrpc: '2.0', id: null, error: { code: -32700, message: 'Parse error', data: 'x' } },
    'subscription refused: starknet_subscribeNewHeads: Parse error: x (-32700)',
  ],
  [
    'refused with a secret of its URL',
    { jsonrpc: '2.0', id: 1, error: { code: 1, message: 'no key a1b2c3d4e5f6' } },
    'subscription refused: starknet_subscribeNewHeads: no key … (1)',
  ],
  ['refused without a code', { jsonrpc: '2.0', id: 1, error: 'no' }, 'subscription refused'],
])('a subscription that is %s is tried again, and the log says why', async (_how, refusal, why) => {
  answers = [refusal];
  subscribe();
  await expect.poll(() => requests.length).toBe(1);
  await expect.poll(() => server.clients.size).toBe(0);
  expect(subscription.isLive()).toBe(false);
  expect(changes).toBe(0);
  expect(JSON.parse(logged[0] ?? '')).toMatchObject({ why });
  await live();
  expect(requests).toHaveLength(2);
});

test('a connection that breaks is opened again, and its heads are announced', async () => {
  subscribe();
  await live();
  sockets[0]?.terminate();
  await expect.poll(() => subscription.isLive()).toBe(false);
  await live();
  send(sockets[1], ANNOUNCED);
  await expect.poll(() => changes).toBe(1);
});

test('a restart leaves one connection, the new one', async () => {
  subscribe();
  await live();
  subscription.restart();
  expect(subscription.isLive()).toBe(false);
  send(sockets[0], ANNOUNCED);
  await live();
  await expect.poll(() => server.clients.size).toBe(1);
  send(sockets[1], ANNOUNCED);
  await expect.poll(() => changes).toBe(1);
});

test('a closed subscription neither calls back nor connects', async () => {
  subscribe();
  await live();
  subscription.close();
  send(sockets[0], ANNOUNCED);
  await expect.poll(() => server.clients.size).toBe(0);
  expect(subscription.isLive()).toBe(false);
  vi.useFakeTimers();
  await vi.advanceTimersByTimeAsync(120_000);
  vi.useRealTimers();
  expect(changes).toBe(0);
  expect(sockets).toHaveLength(1);
});

test('connects to an unavailable node once it is back', async () => {
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  const log = pino({ level: 'warn' }, { write: (line) => void logged.push(line) });
  subscription = headSubscriptions(`ws://127.0.0.1:${port}`, log)(() => (changes += 1));
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(subscription.isLive()).toBe(false);
  server = new WebSocketServer({ port, host: '127.0.0.1' });
  server.on('connection', (socket) => socket.on('message', () => send(socket, CONFIRMED)));
  await live();
});
