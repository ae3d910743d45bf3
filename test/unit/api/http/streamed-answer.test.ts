import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { connect } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';

import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from 'vitest';

import { createApp } from '../../../../api/http/app.ts';
import { limitPipelining } from '../../../../api/http/pipelining.ts';
import { StreamedAnswer, defineRoute } from '../../../../api/http/route.ts';
import { sleep } from '../../../../infra/lifecycle.ts';
import { createLogger } from '../../../../infra/log.ts';
import { createMetrics } from '../../../../infra/metrics.ts';

/** Answers that are sent while they are made, through real HTTP. */

const STALL_MS = 60_000;
let made: Readable | null = null;

const endless = defineRoute({
  id: 'endless',
  method: 'GET',
  path: '/api/endless/',
  summary: 'bytes without an end',
  tag: 'streams',
  auth: 'none',
  response: { 200: new StreamedAnswer({ 'text/plain': 'bytes' }) },
  async handler({ request }) {
    const headers = { 'Content-Length': String(2 ** 40) };
    // As if other requests waited for the place that this one keeps.
    request.place.isWanted = () => request.query['wanted'] === '1';
    const body = { mediaType: 'text/plain', stream: request.isHead ? null : bytes() };
    return { status: 200, headers, body };
  },
});

const ending = defineRoute({
  id: 'ending',
  method: 'GET',
  path: '/api/ending/',
  summary: 'bytes with a trailer',
  tag: 'streams',
  auth: 'none',
  response: { 200: new StreamedAnswer({ 'text/plain': 'bytes' }) },
  async handler() {
    const body = {
      mediaType: 'text/plain',
      stream: Readable.from(['whole']),
      trailers: () => ({ 'X-Sum': '5' }),
    };
    return { status: 200, headers: { Trailer: 'X-Sum' }, body };
  },
});

function bytes(): Readable {
  const chunk = Buffer.alloc(65_536, 'x');
  made = new Readable({ read: () => void made?.push(chunk) });
  return made;
}

let server: Server;
let port: number;

beforeAll(async () => {
  const never = (): never => {
    throw new Error('no store here');
  };
  const app = createApp({
    routes: [endless, ending],
    log: createLogger('test', 'silent'),
    metrics: createMetrics('api'),
    pool: { query: never } as never,
    findKey: never,
    limits: { query: never } as never,
    defaultCeiling: null,
    usage: { count: () => {} },
    now: Date.now,
    trustedProxies: [],
    servedBuilds: async () => ({ table: never, schema: never, state: null, chainState: null }),
    indexedHeight: () => null,
    reachesHeight: async () => false,
    clickhouseFor: never,
    poolFor: () => ({ query: never }),
    readiness: async () => ({ ok: true, body: {} }),
    stallMs: STALL_MS,
  });
  const handle = app.callback();
  server = createServer(limitPipelining((request, response) => void handle(request, response)));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  port = (server.address() as AddressInfo).port;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => void (made = null));
afterEach(() => void vi.useRealTimers());

const isDestroyed = (): boolean => made?.destroyed === true;

function connectClient(query = ''): Socket {
  const client = connect(port, '127.0.0.1').pause();
  client.on('error', () => {});
  client.write(`GET /api/endless/${query} HTTP/1.1\r\nHost: x\r\n\r\n`);
  return client;
}

/** A client whose answer has begun, beside a fake clock of the server, and the server's end of its connection. */
async function open(query = ''): Promise<{ client: Socket; ours: Socket }> {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const accepted = once(server, 'connection');
  const client = connectClient(query);
  const [ours] = (await accepted) as [Socket];
  while (ours.bytesWritten === 0) await turn();
  return { client, ours };
}

/** Reads all that arrives until the server has sent so many bytes more. */
async function readMore({ client, ours }: Awaited<ReturnType<typeof open>>, bytes: number): Promise<void> {
  const enough = ours.bytesWritten + bytes;
  for (; ours.bytesWritten < enough && !ours.destroyed; await turn()) client.read();
}

it('disconnects a client that takes nothing', async () => {
  const { client } = await open();
  // First the kernel takes some MB.
  for (let stalls = 0; stalls < 100 && !isDestroyed(); stalls += 1) {
    await sleep(10);
    vi.advanceTimersByTime(STALL_MS);
  }
  expect(isDestroyed()).toBe(true);
  client.destroy();
});

it('keeps a client that takes little at a time', async () => {
  const connection = await open();
  for (let ms = 0; ms < 3 * STALL_MS; ms += STALL_MS / 2) {
    await readMore(connection, 1);
    vi.advanceTimersByTime(STALL_MS / 2);
  }
  expect(isDestroyed()).toBe(false);
  connection.client.destroy();
  vi.useRealTimers();
  await vi.waitFor(() => expect(isDestroyed()).toBe(true));
});

it('disconnects a client that takes little while others wait for its place', async () => {
  const { client } = await open('?wanted=1');
  for (let seconds = 0; seconds < 100 && !isDestroyed(); seconds += 1) {
    client.read(20_000);
    await sleep(10);
    vi.advanceTimersByTime(1000);
  }
  expect(isDestroyed()).toBe(true);
  client.destroy();
});

it('disconnects a client whose answer waits behind an endless one of its connection', async () => {
  const { client, ours } = await open();
  const first = made;
  client.write('GET /api/endless/?wanted=1 HTTP/1.1\r\nHost: x\r\n\r\n');
  while (made === first || made?.readableFlowing !== false) await turn();
  vi.advanceTimersByTime(10_000);
  expect(ours.destroyed).toBe(true);
});

it('keeps a client that takes enough while others wait for its place', async () => {
  const connection = await open('?wanted=1');
  for (let seconds = 0; seconds < 30; seconds += 1) {
    await readMore(connection, 300_000);
    vi.advanceTimersByTime(1000);
  }
  expect(isDestroyed()).toBe(false);
  connection.client.destroy();
});

it.each([
  ['HTTP/1.1', /\r\ntrailer: x-sum\r\n[^]*whole\r\n0\r\nx-sum: 5\r\n\r\n$/i],
  ['HTTP/1.0', /^(?![^]*trailer)[^]*\r\n\r\nwhole$/i],
])('has trailers only where the answer has chunks: %s', async (version, answer) => {
  const client = connect(port, '127.0.0.1');
  client.write(`GET /api/ending/ ${version}\r\nHost: x\r\nConnection: close\r\n\r\n`);
  expect(await text(client)).toMatch(answer);
});

it('resets the connection when its source fails, whatever the client has not read yet', async () => {
  const client = connectClient();
  await vi.waitFor(() => expect(made).not.toBe(null));
  const ended = new Promise((resolve) => {
    client
      .once('end', () => resolve('whole'))
      .once('error', ({ code }: NodeJS.ErrnoException) => resolve(code));
  });
  // Until the kernel takes no more.
  for (let before = -1; before !== client.bytesRead; await sleep(100)) before = client.bytesRead;
  (made as Readable | null)?.destroy(new Error('broken'));
  client.resume();
  expect(await ended).toBe('ECONNRESET');
});

it('answers HEAD with the headers of GET, and keeps the connection', async () => {
  const client = connect(port, '127.0.0.1');
  let text = '';
  client.on('data', (chunk) => (text += String(chunk)));
  for (const requests of [1, 2]) {
    client.write('HEAD /api/endless/ HTTP/1.1\r\nHost: x\r\n\r\n');
    await vi.waitFor(() => expect(text.split('HTTP/1.1 200 OK').length).toBe(requests + 1));
  }
  expect(text.toLowerCase()).toContain(`content-length: ${2 ** 40}\r\n`);
  expect(text.toLowerCase()).toContain('content-type: text/plain');
  expect(text.endsWith('\r\n\r\n')).toBe(true);
  expect(made).toBe(null);
  client.destroy();
});

it('makes Node warn of no leaked listeners', async () => {
  const warn = vi.spyOn(process, 'emitWarning');
  const answer = await fetch(`http://127.0.0.1:${port}/api/ending/`);
  expect(await answer.text()).toBe('whole');
  expect(warn.mock.calls.map(([warning]) => String(warning))).toEqual([]);
  warn.mockRestore();
});
