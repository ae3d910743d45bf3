import { createServer } from 'node:http';
import type { Server } from 'node:http';

import Router from '@koa/router';
import Koa from 'koa';
import { afterEach, beforeEach, expect, test } from 'vitest';

import { mountHealth } from '../../../../api/health/health.ts';
import type { RequestState } from '../../../../api/http/request-state.ts';
import { listenTcp } from '../../../../infra/listen-tcp.ts';

/** Collections that have begun; each ends when the test calls `finish`. */
let collections: (() => void)[] = [];
let answer = 'first';
let failure: Error | null = null;
let server: Server;
let url: string;

const collect = async (): Promise<string> => {
  const { promise, resolve } = Promise.withResolvers<void>();
  collections.push(resolve);
  await promise;
  if (failure !== null) throw failure;
  return answer;
};

beforeEach(async () => {
  collections = [];
  answer = 'first';
  failure = null;
  const router = new Router<RequestState>();
  mountHealth(router, {
    readiness: async () => ({ ok: true, body: { text: await collect() } }),
    metricsText: async () => ({ contentType: 'text/plain', text: await collect() }),
  });
  const app = new Koa<RequestState>({ env: 'test' });
  app.silent = true;
  app.use(router.routes());
  const handle = app.callback();
  server = createServer((request, response) => void handle(request, response));
  ({ url } = await listenTcp(server, { host: '127.0.0.1', port: 0, name: 'test', settings: '' }));
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

const finish = (): void => {
  for (const end of collections) end();
};

test.each(['/readyz', '/metrics'])('%s collects once for concurrent and close requests', async (path) => {
  let arrived = 0;
  server.on('request', () => (arrived += 1));
  const requests = Array.from({ length: 60 }, async () => (await fetch(url + path)).text());
  await expect.poll(() => arrived).toBe(60);
  finish();
  for (const text of await Promise.all(requests)) expect(text).toContain('first');
  expect(collections).toHaveLength(1);
});

test.each(['/readyz', '/metrics'])('%s collects again soon after', async (path) => {
  const get = async (): Promise<string> => {
    const text = fetch(url + path).then((response) => response.text());
    const finishing = setInterval(finish, 1);
    return await text.finally(() => clearInterval(finishing));
  };
  expect(await get()).toContain('first');
  answer = 'second';
  await expect.poll(get, { timeout: 5000 }).toContain('second');
});

test('a failed collection is not kept', async () => {
  failure = new Error('no store');
  const failed = fetch(`${url}/metrics`);
  await expect.poll(() => collections).toHaveLength(1);
  finish();
  expect((await failed).status).toBe(500);
  failure = null;
  const next = fetch(`${url}/metrics`);
  await expect.poll(() => collections).toHaveLength(2);
  finish();
  expect(await (await next).text()).toBe('first');
});
