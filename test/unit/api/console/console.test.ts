import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { connect } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';

import { loadConsole } from '../../../../api/console/console.ts';
import { createApp } from '../../../../api/http/app.ts';
import type { AppDeps } from '../../../../api/http/app.ts';
import { createMetrics } from '../../../../infra/metrics.ts';

/** The paths of a built console, through real HTTP and without stores. */

const script = 'const message = "hello"; '.repeat(200);
let folder: string;
let server: Server;
let base: string;
let without: Server;

async function serve(ipfsGateway: string | null): Promise<Server> {
  const app = createApp({
    routes: [],
    console: ipfsGateway === null ? null : await loadConsole(folder, ipfsGateway),
    readiness: async () => ({ ok: true, body: { status: 'ready' } }),
    indexedHeight: () => 7,
    trustedProxies: [],
    usage: { count: () => {} },
    log: pino({ level: 'silent' }),
    metrics: createMetrics('api'),
  } as unknown as AppDeps);
  const listening = createServer((request, response) => void app.callback()(request, response));
  await new Promise<void>((resolve) => listening.listen(0, '127.0.0.1', resolve));
  return listening;
}

const urlOf = (one: Server): string => `http://127.0.0.1:${(one.address() as AddressInfo).port}`;
const get = async (path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Response> =>
  await fetch(base + path, { headers, method });

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tds-console-'));
  mkdirSync(join(folder, 'assets'));
  writeFileSync(join(folder, 'index.html'), '<html><meta name="image-origins" content="" />page</html>');
  writeFileSync(join(folder, 'docs.html'), '<html>reference</html>');
  writeFileSync(join(folder, 'favicon.svg'), '<svg/>');
  writeFileSync(join(folder, 'assets', 'index-1a2b.js'), script);
  // More than the kernel holds between server and client.
  writeFileSync(join(folder, 'assets', 'large-3c4d.js'), Buffer.alloc(32 * 1024 * 1024, ' '));
  writeFileSync(join(folder, '.sources'), 'hash');
  server = await serve('https://gateway.example/base');
  without = await serve(null);
  base = urlOf(server);
});
afterAll(() => {
  server.close();
  without.close();
  rmSync(folder, { recursive: true });
});

describe('a page of the console', () => {
  test.each([
    '/',
    '/search',
    '/account/0x1',
    '/token/0x1/',
    '/block/12',
    '/tx/0x1',
    '/keys',
    '/webhooks',
    '/webhooks/3',
    '/operations',
    '/verification',
  ])('is served at %s', async (path) => {
    const answer = await get(path);
    expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8']);
    expect(await answer.text()).toContain('page');
  });

  test('runs only scripts of the service, and shows images of the gateway besides its own', async () => {
    const answer = await get('/');
    const policy = (answer.headers.get('content-security-policy') ?? '').split('; ');
    expect(policy).toContain("default-src 'self'");
    expect(policy).toContain("img-src 'self' data: https://gateway.example");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy.join(' ')).not.toContain('unsafe');
    expect(answer.headers.get('x-frame-options')).toBe('DENY');
    expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
    expect(answer.headers.get('access-control-allow-origin')).toBeNull();
    expect(answer.headers.get('cache-control')).toBe('no-cache');
    expect(await answer.text()).toContain('content="https://gateway.example"');
  });

  test('is another for the API reference, whose styles alone may be inline', async () => {
    const answer = await get('/docs');
    expect(await answer.text()).toContain('reference');
    const policy = answer.headers.get('content-security-policy') ?? '';
    expect(policy.match(/[a-z-]+ [^;]*unsafe[^;]*/g)).toEqual(["style-src 'self' 'unsafe-inline'"]);
  });

  test.each([
    '/nothing',
    '/accounts/0x1',
    '/account',
    '/account/0x1/more',
    '/index.html',
    '/.sources',
    '/assets/',
    '/assets/none.js',
  ])('is not served at %s', async (path) => {
    const answer = await get(path);
    expect([answer.status, await answer.json()]).toMatchObject([404, { code: 'not_found' }]);
  });

  test.each(['/api/nothing', '/api/', '/api/keys', '/healthz', '/readyz'])(
    'leaves %s as it is',
    async (path) => {
      const answers = await Promise.all([get(path), fetch(urlOf(without) + path)]);
      const [own, other] = answers.map((answer) => [answer.status, answer.headers.get('content-type')]);
      expect(own).toEqual(other);
      expect(own?.[1]).toContain('json');
    },
  );
});

describe('an asset', () => {
  test.each(['br', 'gzip', 'identity'])('is sent as %s, the same for ever', async (encoding) => {
    const answer = await get('/assets/index-1a2b.js', { 'accept-encoding': encoding });
    expect(answer.headers.get('content-type')).toBe('text/javascript; charset=utf-8');
    expect(answer.headers.get('content-encoding')).toBe(encoding === 'identity' ? null : encoding);
    expect(answer.headers.get('cache-control')).toBe('public, max-age=31536000, immutable');
    expect(answer.headers.get('vary')).toBe('Accept-Encoding');
    if (encoding !== 'identity')
      expect(Number(answer.headers.get('content-length'))).toBeLessThan(script.length / 4);
    expect(await answer.text()).toBe(script);
  });

  test('is answered to HEAD without its content', async () => {
    const answer = await get('/assets/index-1a2b.js', { 'accept-encoding': 'identity' }, 'HEAD');
    expect([answer.status, answer.headers.get('content-length')]).toEqual([200, String(script.length)]);
  });
});

test('without a built console its paths are answered 404', async () => {
  expect(await loadConsole(join(folder, 'missing'), '')).toBeNull();
  const answer = await fetch(urlOf(without));
  expect([answer.status, await answer.json()]).toMatchObject([404, { code: 'not_found' }]);
});

test('a client that does not read an asset within a minute is disconnected', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  try {
    const accepted = once(server, 'connection');
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1').pause();
    client.on('error', () => {});
    client.write('GET /assets/large-3c4d.js HTTP/1.1\r\nHost: x\r\n\r\n');
    const [ours] = await accepted;
    await vi.waitFor(() => expect(ours.bytesWritten).toBeGreaterThan(0));
    vi.advanceTimersByTime(59_000);
    expect(ours.destroyed).toBe(false);
    vi.advanceTimersByTime(1000);
    expect(ours.destroyed).toBe(true);
    client.destroy();
  } finally {
    vi.useRealTimers();
  }
});
