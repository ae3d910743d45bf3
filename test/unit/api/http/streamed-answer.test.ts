import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { connect } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';

import { afterAll, beforeAll, expect, it, vi } from 'vitest';

import { createApp } from '../../../../api/http/app.ts';
import { limitPipelining } from '../../../../api/http/pipelining.ts';
import { StreamedAnswer, defineRoute } from '../../../../api/http/route.ts';
import { sleep } from '../../../../infra/lifecycle.ts';
import { createLogger } from '../../../../infra/log.ts';
import { createMetrics } from '../../../../infra/metrics.ts';

/** Answers that are sent while they are made, through real HTTP. */

/** Long enough for the slow client to take what the kernel holds between server and client, some MB. */
const STALL_MS = 1500;
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
    // As if other requests waited for the place that this one keeps, once the kernel's buffers are full.
    const fullAt = Date.now() + 3000;
    request.place.isWanted = () => request.query['wanted'] === '1' && Date.now() > fullAt;
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

const servers: Server[] = [];
let port: number;
/** Of a server that disconnects a client only after a minute without a byte. */
let patientPort: number;

async function serve(stallMs: number): Promise<number> {
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
    stallMs,
  });
  const handle = app.callback();
  const server = createServer(limitPipelining((request, response) => void handle(request, response)));
  servers.push(server.listen(0, '127.0.0.1'));
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

beforeAll(async () => {
  [port, patientPort] = await Promise.all([serve(STALL_MS), serve(60_000)]);
});
afterAll(() => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
});

const isDestroyed = (): boolean => made?.destroyed === true;

function open(query = '', at = port): Socket {
  const client = connect(at, '127.0.0.1').pause();
  client.on('error', () => {});
  client.write(`GET /api/endless/${query} HTTP/1.1\r\nHost: x\r\n\r\n`);
  return client;
}

it('disconnects a client that takes nothing', async () => {
  made = null;
  const client = open();
  await vi.waitFor(() => expect(made).not.toBe(null));
  await vi.waitFor(() => expect(isDestroyed()).toBe(true), 10 * STALL_MS);
  client.destroy();
});

it('keeps a client that takes little at a time', async () => {
  made = null;
  const client = open();
  let taken = 0;
  for (const end = Date.now() + 3 * STALL_MS; Date.now() < end; await sleep(5)) {
    taken += (client.read() as Buffer | null)?.length ?? 0;
  }
  expect(taken).toBeGreaterThan(0);
  expect(isDestroyed()).toBe(false);
  client.destroy();
  await vi.waitFor(() => expect(isDestroyed()).toBe(true));
});

it.each([
  { what: 'disconnects a client that takes little', takes: 20_000, isKept: false },
  { what: 'keeps a client that takes enough', takes: 2_000_000, isKept: true },
])('$what while others wait for its place', async ({ takes, isKept }) => {
  made = null;
  const client = open('?wanted=1', patientPort);
  let taken = 0;
  const began = Date.now();
  for (const end = began + 11_000; Date.now() < end && !isDestroyed(); await sleep(5)) {
    // All that has arrived at once would be too much for the slow one.
    const due = (takes * (Date.now() - began)) / 1000 - taken;
    const some =
      due > 0 ? (client.read(Math.min(Math.ceil(due), client.readableLength)) as Buffer | null) : null;
    taken += some?.length ?? 0;
  }
  expect(isDestroyed()).toBe(!isKept);
  client.destroy();
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
  made = null;
  const client = open();
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
  made = null;
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
