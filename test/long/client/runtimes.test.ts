import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { copyFileSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join, resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';

import { chromium } from 'playwright-core';
import { rolldown } from 'rolldown';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import { signatureHeaders } from '../../../schemas/webhooks/signature.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { CHROMIUM } from '../../support/browser.ts';
import { installPackedClient } from '../../support/packed-client.ts';
import type { ClientProject } from '../../support/packed-client.ts';
import { ALICE, BOB, COIN, TX1, writeSmallChain } from '../../support/small-chain.ts';
import { aTransfer, writeBlocks } from '../../support/transfer-world.ts';

/** The packed client in each runtime that it promises, against the service behind a proxy that refuses and cuts. */

/** Set-up downloads the runtimes. */
const folder = readdirSync('.cache').find((name) => name.startsWith('runtimes-'));
const bin = (name: string): string => resolve('.cache', folder ?? 'runtimes', 'node_modules', '.bin', name);
let project: ClientProject;
const [FIRST, TOP, PER_BLOCK] = [41, 60, 4];
/** Connections of the stream that are cut, and after how many bytes. */
const [CUTS, CUT_AFTER] = [2, 3000];

let world: ApiWorld;
let proxy: Server;
let input: Record<string, unknown>;
/** Requests of the present runtime, as `status path`; `cut` instead of the status where its connection was cut. */
let seen: string[] = [];
let refusedAt: number | null = null;
/** Milliseconds from the refusal to the repeated request. */
let repeatedAfter = 0;

const HOP_HEADERS = new Set([
  'host',
  'connection',
  'content-encoding',
  'content-length',
  'transfer-encoding',
]);
const passedOn = (headers: Iterable<[string, unknown]>): Record<string, string> =>
  Object.fromEntries(
    [...headers].filter(([name]) => !HOP_HEADERS.has(name)).map(([name, value]) => [name, String(value)]),
  );

/** Passes requests on; the first one of the tokens is refused, and the first connections of the stream are cut. */
async function pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? '/', world.url);
  const { pathname: path } = url;
  const { method = 'GET' } = request;
  const body = await buffer(request);
  const leaving = new AbortController();
  response.on('close', () => leaving.abort());
  const headers = passedOn(Object.entries(request.headers));
  const sent = { method, headers, ...(body.length === 0 ? {} : { body }), signal: leaving.signal };
  const answer = await fetch(url, sent);
  if (method === 'GET' && path === '/api/tokens/') {
    if (refusedAt === null) {
      refusedAt = performance.now();
      seen.push(`429 ${path}`);
      // With the service's own headers: without those of CORS, a page may not read `Retry-After`.
      return void response.writeHead(429, { ...passedOn(answer.headers), 'Retry-After': '1' }).end('{}');
    }
    repeatedAfter = performance.now() - refusedAt;
  }
  const isCut = path.startsWith('/api/stream/') && seen.filter((one) => one.startsWith('cut')).length < CUTS;
  // A browser first asks whether it may send headers of its own.
  if (method !== 'OPTIONS') seen.push(`${isCut ? 'cut' : answer.status} ${path}`);
  response.writeHead(answer.status, passedOn(answer.headers));
  let bytes = 0;
  for await (const chunk of answer.body ?? []) {
    response.write(chunk);
    bytes += chunk.length;
    if (isCut && bytes > CUT_AFTER) return void response.destroy();
  }
  response.end();
}

async function startProxy(): Promise<Server> {
  const server = createServer((request, response) => {
    pass(request, response).catch(() => response.destroy());
  });
  return await listen(server);
}

async function listen(server: Server): Promise<Server> {
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  return server;
}
const portOf = (server: Server): number => (server.address() as AddressInfo).port;

beforeAll(async () => {
  world = await apiWorld();
  const { apiKey, names } = await writeSmallChain(world);
  const owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  const blocks = Array.from({ length: TOP - FIRST + 1 }, (_, index) => ({
    height: FIRST + index,
    timestamp: 1_700_000_100 + FIRST + index,
    chunk: 'live',
    transfers: Array.from({ length: PER_BLOCK }, (_one, position) =>
      aTransfer({ token: COIN, from: ALICE, to: BOB, position, txHash: TX1, amount: 2_500_000n }),
    ),
  }));
  await writeBlocks(owner, blocks, { seq: 1, offset: 100 }, names);
  await owner.close();

  project = installPackedClient();
  copyFileSync('test/support/client-program.mjs', join(project.dir, 'program.mjs'));
  project.write(
    'main.mjs',
    `import { run } from './program.mjs';
     console.log(JSON.stringify(await run(JSON.parse(process.env.INPUT))));`,
  );

  proxy = await startProxy();
  const secret = `whsec_${randomBytes(32).toString('base64')}`;
  const body = JSON.stringify({ event: 'ping', created_at: '2027-01-15T08:00:00Z', data: { message: 'é' } });
  const timestampSeconds = Math.floor(Date.now() / 1000);
  const signing = { body, secret, deliveryId: 'd1', event: 'ping', attempt: 1, timestampSeconds };
  input = {
    baseUrl: `http://127.0.0.1:${portOf(proxy)}`,
    apiKey,
    token: COIN,
    account: BOB,
    first: FIRST,
    top: TOP,
    delivery: { body, secret, headers: signatureHeaders(signing) },
  };
});
afterAll(async () => {
  proxy?.closeAllConnections();
  proxy?.close();
  await world?.close();
  rmSync(project.dir, { recursive: true });
});
beforeEach(() => {
  seen = [];
  refusedAt = null;
});

const makeInput = () => ({
  ...input,
  sync: {
    lookupHash: randomBytes(32).toString('hex'),
    authKey: randomBytes(32).toString('hex'),
    blob: 'sealed é',
  },
});

const transfers = Array.from({ length: (TOP - FIRST + 1) * PER_BLOCK }, (_, index) => [
  FIRST + Math.floor(index / PER_BLOCK),
  index % PER_BLOCK,
]);

function expectRight(result: unknown): void {
  expect(result).toEqual({
    known: 1,
    rows: transfers.length,
    received: '200',
    streamed: transfers.map(([height, index]) => `${height} ${index}`),
    event: 'ping',
    refused: 'WebhookError',
    blob: 'sealed é',
  });
  expect(seen.filter((one) => one.endsWith('/api/tokens/'))).toEqual([
    '429 /api/tokens/',
    '200 /api/tokens/',
  ]);
  expect(repeatedAfter).toBeGreaterThanOrEqual(999);
  expect(seen.filter((one) => one.includes('/api/stream/')).map((one) => one.slice(0, 3))).toEqual([
    'cut',
    'cut',
    '200',
  ]);
}

test.each([
  ['Node 20', 'node', []],
  ['Deno', 'deno', ['run', '--no-remote', '--node-modules-dir=manual', '--allow-net', '--allow-env']],
  ['Bun', 'bun', ['run']],
])('runs in %s', async (_name, program, args) => {
  const { stdout } = await promisify(execFile)(bin(program), [...args, 'main.mjs'], {
    cwd: project.dir,
    env: { PATH: process.env['PATH'], HOME: project.dir, INPUT: JSON.stringify(makeInput()) },
    timeout: 60_000,
  });
  expectRight(JSON.parse(stdout));
});

test('runs in Chromium, on a page of another host', async () => {
  const bundle = await rolldown({ input: join(project.dir, 'program.mjs'), platform: 'browser' });
  const [{ code }] = (await bundle.generate({ format: 'iife', name: 'program' })).output;
  await bundle.close();
  const page = await listen(
    createServer((_request, response) => response.setHeader('content-type', 'text/html').end('')),
  );
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
  try {
    const tab = await browser.newPage();
    await tab.goto(`http://localhost:${portOf(page)}/`);
    const call = `program.run(${JSON.stringify(makeInput())})`;
    expectRight(await tab.evaluate(`(async () => { ${code}; return await ${call}; })()`));
  } finally {
    await browser.close();
    page.close();
  }
});
