import { createServer, request as httpRequest } from 'node:http';
import type { ClientRequest, Server } from 'node:http';
import type { Socket } from 'node:net';
import { gzipSync } from 'node:zlib';

import Koa from 'koa';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { createBodyIntake } from '../../../../api/http/body-intake.ts';
import { HttpError } from '../../../../api/http/errors.ts';
import { listenTcp } from '../../../../infra/listen-tcp.ts';

const KIB = 1024;
const limits = {
  bytes: 1000 * KIB,
  bytesPerAddress: 500 * KIB,
  slowBodiesPerAddress: 2,
  minBytesPerSecond: 100,
  graceSeconds: 5,
};
const LIMIT = 300 * KIB;

/** The connections of the requests that have begun. */
let received: Map<string, Socket>;
/** Names of the requests whose bodies are parsed, in that order. */
let parsed: string[] = [];
/** Parsing these ends when the test calls it. */
let held: Map<string, () => void>;
let holds: Set<string>;
let server: Server;
let url: string;

beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  received = new Map();
  parsed = [];
  held = new Map();
  holds = new Set();
  const intake = createBodyIntake(limits);
  const app = new Koa({ env: 'test' });
  app.silent = true;
  app.use(async (context) => {
    const [name, address] = [context.get('x-name'), context.get('x-address')];
    const taken = intake.take(context, { address, limit: LIMIT }, async (bytes) => {
      parsed.push(name);
      if (holds.has(name)) await new Promise<void>((resolve) => held.set(name, resolve));
      return bytes.length;
    });
    received.set(name, context.req.socket);
    try {
      context.body = String(await taken);
    } catch (error) {
      if (!(error instanceof HttpError)) throw error;
      context.status = error.status;
      context.set(error.headers);
      context.body = error.code;
    }
  });
  const handle = app.callback();
  server = createServer((request, response) => void handle(request, response));
  ({ url } = await listenTcp(server, { host: '127.0.0.1', port: 0, name: 'test', settings: '' }));
});
afterEach(() => {
  vi.useRealTimers();
  server.closeAllConnections();
  server.close();
});

interface Sending {
  readonly name: string;
  readonly client: ClientRequest;
  readonly answer: Promise<string>;
}

/** Begins a chunked request; the test ends it. */
async function begin(name: string, address = 'a', headers: Record<string, string> = {}): Promise<Sending> {
  const client = httpRequest(url, {
    method: 'POST',
    agent: false,
    headers: { 'x-name': name, 'x-address': address, 'transfer-encoding': 'chunked', ...headers },
  });
  const { promise, resolve } = Promise.withResolvers<string>();
  client.on('error', (error) => resolve(error.message));
  client.on('response', (response) => {
    let text = `${response.statusCode} `;
    response.on('data', (chunk) => (text += String(chunk)));
    response.on('end', () => resolve(text));
  });
  client.flushHeaders();
  await expect.poll(() => received.has(name)).toBe(true);
  return { name, client, answer: promise };
}
const send = async (name: string, body: Buffer, address = 'a', headers = {}): Promise<Sending> => {
  const sending = await begin(name, address, headers);
  sending.client.end(body);
  return sending;
};
/** Begins a request and sends a part of its body; resolves when the server has read it. */
async function beginWith(name: string, bytes: number, address = 'a'): Promise<Sending> {
  const sending = await begin(name, address);
  const socket = received.get(name);
  const before = socket?.bytesRead ?? 0;
  sending.client.write(Buffer.alloc(bytes));
  await expect.poll(() => (socket?.bytesRead ?? 0) - before).toBeGreaterThanOrEqual(bytes);
  return sending;
}
const large = Buffer.alloc(70 * KIB);

test('parses large bodies on after the clock was set back', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'Date'] });
  expect(await (await send('first', large)).answer).toBe(`200 ${large.length}`);
  vi.setSystemTime(Date.now() - 3_600_000);
  for (let more = 0; more < 8; more += 1)
    expect(await (await send(`later ${more}`, large)).answer).toBe(`200 ${large.length}`);
});

test('parses large bodies of an address one after the other; small ones, and those of others, at once', async () => {
  holds.add('first');
  const first = await send('first', large);
  await expect.poll(() => parsed).toEqual(['first']);
  const second = await send('second', large);
  const compressed = await send('compressed', gzipSync('x'), 'a', { 'content-encoding': 'gzip' });
  expect(await (await send('small', Buffer.alloc(68 * KIB))).answer).toBe(`200 ${68 * KIB}`);
  expect(await (await send('of another', large, 'b')).answer).toBe(`200 ${large.length}`);
  expect(parsed).toEqual(['first', 'small', 'of another']);
  held.get('first')?.();
  for (const { answer } of [first, second, compressed]) expect(await answer).toMatch(/^200 /);
});

test('does not parse the body of a client that has left', async () => {
  holds.add('first');
  const first = await send('first', large);
  await expect.poll(() => parsed).toEqual(['first']);
  const second = await send('second', large);
  const third = await send('third', large);
  second.client.destroy();
  await second.answer;
  held.get('first')?.();
  for (const { answer } of [first, third]) expect(await answer).toMatch(/^200 /);
  expect(parsed).toEqual(['first', 'third']);
});

test('rejects a body over the limit, and keeps the connection until it is sent', async () => {
  const sending = await begin('too large');
  sending.client.write(Buffer.alloc(LIMIT));
  sending.client.end('x');
  expect(await sending.answer).toBe('413 too_large');
});

test('rejects a body that arrives too slowly', async () => {
  const slow = await beginWith('slow', 499);
  const steady = await beginWith('steady', 500);
  vi.advanceTimersByTime(5000);
  expect(await slow.answer).toBe('408 request_timeout');
  steady.client.end('x');
  expect(await steady.answer).toBe('200 501');
});

test('rejects the oldest of too many slow bodies of an address', async () => {
  const first = await begin('first');
  const others = [await begin('second'), await begin('of another', 'b')];
  vi.advanceTimersByTime(1000);
  others.push(await begin('third'));
  vi.advanceTimersByTime(1000);
  expect(await first.answer).toBe('408 request_timeout');
  for (const { client, answer } of others) {
    client.end('x');
    expect(await answer).toBe('200 1');
  }
});

test('drops the oldest arriving body of an address that sends too many bytes', async () => {
  const first = await beginWith('first', 200 * KIB);
  const second = await beginWith('second', 200 * KIB);
  const third = await send('third', Buffer.alloc(200 * KIB));
  expect(await third.answer).toBe(`200 ${200 * KIB}`);
  expect(await first.answer).toBe('503 overloaded');
  second.client.end('x');
  expect(await second.answer).toBe(`200 ${200 * KIB + 1}`);
});

test('counts the memory of chunks, not only their bytes', async () => {
  const { client, answer } = await begin('tiny chunks');
  client.socket?.write('1\r\nx\r\n'.repeat(3000));
  expect(await answer).toBe('503 overloaded');
});

test('drops bodies of the address that takes most memory when all together are too large', async () => {
  const [first, second] = [
    await beginWith('first', 240 * KIB, 'greedy'),
    await beginWith('second', 240 * KIB, 'greedy'),
  ];
  const others = [];
  for (const address of ['b', 'c', 'd']) others.push(await beginWith(address, 200 * KIB, address));
  expect(await first.answer).toBe('503 overloaded');
  for (const { client, answer } of [second, ...others]) {
    client.end('x');
    expect(await answer).toMatch(/^200 /);
  }
});
