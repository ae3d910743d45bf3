import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { connect } from 'node:net';
import type { AddressInfo } from 'node:net';
import { Writable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';

import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';

import { createApp } from '../../../../api/http/app.ts';
import { answerMalformedRequests } from '../../../../api/http/malformed-requests.ts';
import { HttpError } from '../../../../api/http/errors.ts';
import { integerField, textField } from '../../../../api/http/fields.ts';
import { HELD_MIB_PER_USER } from '../../../../api/http/held-answers.ts';
import { address, boolean, integer } from '../../../../api/http/params.ts';
import { defineRoute } from '../../../../api/http/route.ts';
import { sleep } from '../../../../infra/lifecycle.ts';
import { createMetrics } from '../../../../infra/metrics.ts';
import { parseNetwork } from '../../../../infra/networks.ts';
import { AppError } from '../../../../schemas/errors.ts';
import { toFelt } from '../../../../schemas/felt.ts';

/** The framework over test routes, through real HTTP and without stores. */

const thing = z.object({ success: z.literal(true), name: z.string(), echo: z.unknown() });
const routes = [
  defineRoute({
    id: 'route1',
    method: 'GET',
    path: '/api/things/{name}/',
    summary: 'a thing',
    tag: 'things',
    auth: 'none',
    params: z.object({ name: z.string() }),
    query: z.object({
      token: address().optional(),
      block: integer({ min: 0 }).optional(),
      hidden: boolean().optional(),
    }),
    response: { 200: thing },
    handler: async ({ input: { params, query } }) => ({
      status: 200,
      body: { success: true as const, name: params.name, echo: query, undeclared: 'secret' },
    }),
  }),
  defineRoute({
    id: 'routeAsOf',
    method: 'GET',
    path: '/api/slowly/',
    summary: 'an answer that takes longer than one client of ClickHouse may be used',
    tag: 'things',
    auth: 'none',
    asOf: true,
    response: { 200: z.object({ height: z.int().optional() }) },
    handler: async ({ asOf }) => {
      await sleep(2 * CLIENT_MS);
      return { status: 200, body: { height: asOf?.height } };
    },
  }),
  defineRoute({
    id: 'route2',
    method: 'GET',
    path: '/api/things/search/',
    summary: 'not a thing called search',
    tag: 'things',
    auth: 'none',
    response: { 200: z.object({ found: z.literal('search') }) },
    handler: async () => ({ status: 200, body: { found: 'search' as const } }),
  }),
  defineRoute({
    id: 'route3',
    method: 'GET',
    path: '/api/cached/{name}/',
    summary: 'how often it was requested',
    tag: 'things',
    auth: 'none',
    isCacheable: true,
    params: z.object({ name: z.string() }),
    query: z.object({ status: integer().optional(), wanted: boolean().optional() }),
    response: { 200: z.object({ times: z.int(), name: z.string() }), 202: z.object({ times: z.int() }) },
    handler: async ({ input: { params, query }, request: { signal, place } }) => {
      asked += 1;
      // As if other requests waited for the place that this one keeps.
      place.isWanted = () => query.wanted === true;
      await gate?.(signal);
      if (query.status === 202) return { status: 202, body: { times: asked } };
      const name = params.name === 'large' ? 'x'.repeat(20_000_000) : params.name;
      return { status: 200, body: { times: asked, name }, noStore: params.name === 'nobody' };
    },
  }),
  defineRoute({
    id: 'route4',
    method: 'POST',
    path: '/api/things/',
    summary: 'make a thing',
    tag: 'things',
    auth: 'none',
    body: z.object({ name: textField({ max: 10 }), size: integerField({ min: 1, max: 9 }).nullish() }),
    response: { 201: z.object({ name: z.string() }), 204: null },
    handler: async ({ input: { body } }) =>
      body.name === 'nothing'
        ? { status: 204, body: null }
        : { status: 201, body: { name: body.name }, headers: { Location: '/api/things/x/' } },
  }),
  defineRoute({
    id: 'route5',
    method: 'GET',
    path: '/api/numbers/{count}/',
    summary: 'an answer of any size',
    tag: 'things',
    auth: 'none',
    params: z.object({ count: z.coerce.number() }),
    response: { 200: z.array(z.object({ n: z.int() })) },
    handler: async ({ input: { params } }) => ({ status: 200, body: numbers(params.count) }),
  }),
  defineRoute({
    id: 'route6',
    method: 'GET',
    path: '/api/lists/{count}/',
    summary: 'two lists in an object',
    tag: 'things',
    auth: 'none',
    params: z.object({ count: z.coerce.number() }),
    response: {
      200: z.object({
        count: z.int(),
        short: z.array(z.string()),
        long: z.array(z.object({ n: z.int() })),
        absent: z.string().optional(),
        last: z.null(),
      }),
    },
    handler: async ({ input: { params } }) => ({
      status: 200,
      body: {
        last: null,
        long: Iterator.from(numbers(params.count)).toArray(),
        short: params.count === 7 ? JSON.parse('[7]') : ['"'],
        count: params.count,
        absent: undefined,
        undeclared: 'secret',
      },
    }),
  }),
  defineRoute({
    id: 'route7',
    method: 'GET',
    path: '/api/broken/{how}/',
    summary: 'fails',
    tag: 'things',
    auth: 'none',
    params: z.object({ how: z.string() }),
    response: { 200: z.object({ count: z.number() }) },
    handler: async ({ input: { params } }) => {
      if (params.how === 'bug') throw new Error('password=hunter2');
      if (params.how === 'away')
        throw new AppError('STORE_UNAVAILABLE', 'Kafka at 10.0.0.1', { retryable: true });
      if (params.how === 'late') throw new AppError('COMMAND_TIMEOUT', 'Not known yet.', { retryable: true });
      if (params.how === 'teapot') throw new HttpError(418, 'teapot', 'Short.', { extra: { stout: true } });
      return { status: 200, body: JSON.parse('{"count":"many"}') };
    },
  }),
];

/** The numbers made for the request that is answered; `isLeft` once nobody takes more. */
const sending = { made: 0, isLeft: false };
function* numbers(count: number): Generator<{ n: number; undeclared: string }> {
  Object.assign(sending, { made: 0, isLeft: false });
  try {
    for (let n = 0; n < count; n += 1) {
      sending.made += 1;
      yield { n, undeclared: 'secret' };
    }
  } finally {
    sending.isLeft = true;
  }
}

let asked = 0;
/** How often a request has read what is served. */
let begun = 0;
/** What reading it waits for. */
let held: Promise<void> | null = null;
/** What the handler of cached answers waits for. */
let gate: ((signal: AbortSignal) => Promise<unknown>) | null = null;
/** How long a client of ClickHouse may be used. */
const CLIENT_MS = 100;
let server: Server;
let base: string;
let port: number;
const lines: string[] = [];
const metrics = createMetrics('api');
let height: number | null = null;
let state: string | null = null;

beforeAll(async () => {
  const log = pino(
    { level: 'trace' },
    new Writable({
      write(chunk, _encoding, done) {
        lines.push(String(chunk));
        done();
      },
    }),
  );
  const noStore = {
    query: () => {
      throw new Error('no store here');
    },
  };
  const app = createApp({
    routes,
    log,
    metrics,
    pool: noStore as never,
    findKey: noStore as never,
    limits: noStore as never,
    defaultCeiling: null,
    usage: { count: () => {} },
    now: Date.now,
    trustedProxies: [parseNetwork('127.0.0.0/8')!],
    servedBuilds: async () => {
      begun += 1;
      await held;
      return { table: (name) => name, schema: (name) => name, state, chainState: null };
    },
    indexedHeight: () => height,
    clickhouseFor: () => {
      const until = performance.now() + CLIENT_MS;
      const rows = async (): Promise<unknown[]> => {
        if (performance.now() > until) throw new AppError('QUERY_TIMEOUT', 'too late', { retryable: true });
        return [
          {
            height: 5,
            hash: toFelt(5n),
            seq: 1,
            timestamp: 1_700_000_000,
            parent: toFelt(4n),
            is_deleted: 0,
          },
        ];
      };
      return { rows } as never;
    },
    poolFor: () => noStore as never,
    reachesHeight: async (wanted) => height !== null && height >= wanted,
    readiness: async () => ({ ok: height !== null, body: { status: 'so' } }),
  });
  const handle = app.callback();
  server = createServer((request, response) => void handle(request, response));
  answerMalformedRequests(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
  base = `http://127.0.0.1:${port}`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const call = async (method: string, path: string, init: RequestInit = {}) => {
  const response = await fetch(base + path, { method, ...init });
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    text,
    json: text === '' ? null : JSON.parse(text),
  };
};
const post = (body: string | Uint8Array<ArrayBuffer>, type: string | null = 'application/json') =>
  call('POST', '/api/things/', { body, headers: type === null ? {} : { 'content-type': type } });

it('checks the block of as_of_block with the time of a new client, however long the answer took', async () => {
  const { status, json } = await call('GET', '/api/slowly/?as_of_block=5');
  expect([status, json]).toEqual([200, { height: 5 }]);
});

describe('an array whose items are made while it is sent', () => {
  it.each([0, 1, 50_000])('has all of %i items, as declared', async (count) => {
    const { status, headers, text } = await call('GET', `/api/numbers/${count}/`);
    expect([status, headers.get('content-type')]).toEqual([200, 'application/json; charset=utf-8']);
    expect(text).toBe(JSON.stringify(Array.from({ length: count }, (_, n) => ({ n }))));
  });

  it('is made no faster than its client reads, and not at all when the client has left', async () => {
    const endless = 1e9;
    const client = connect(port, '127.0.0.1').pause();
    client.write(`GET /api/numbers/${endless}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
    let last = -1;
    await vi.waitFor(
      () => {
        const before = last;
        last = sending.made;
        expect([last, sending.isLeft]).toEqual([before, false]);
      },
      { timeout: 60_000, interval: 300 },
    );
    expect(last).toBeGreaterThan(0);
    client.destroy();
    await vi.waitFor(() => expect(sending.isLeft).toBe(true), 30_000);
    expect(sending.made).toBeLessThan(endless);
  });
});

describe('an object with lists', () => {
  it.each([0, 1, 2, 20_000])('is as declared with %i items', async (count) => {
    const { status, headers, text } = await call('GET', `/api/lists/${count}/`);
    expect([status, headers.get('content-type')]).toEqual([200, 'application/json; charset=utf-8']);
    const long = Array.from({ length: count }, (_, n) => ({ n }));
    expect(text).toBe(JSON.stringify({ count, short: ['"'], long, last: null }));
    expect(Number(headers.get('content-length'))).toBe(text.length);
  });

  it('is answered 500 when an item does not match', async () => {
    expect((await call('GET', '/api/lists/7/')).status).toBe(500);
    expect((await call('GET', '/api/lists/1.5/')).status).toBe(500);
  });

  it('does not keep others waiting while it is checked and written', async () => {
    let others = 0;
    const other = setInterval(() => (others += 1), 1);
    await call('GET', '/api/lists/200000/');
    clearInterval(other);
    expect(others).toBeGreaterThan(10);
  });
});

describe('paths and methods', () => {
  it.each(['/api/things/abc/', '/api/things/abc', '/api/things/abc/?', '/api/things/abc?x=1'])(
    '%s',
    async (path) => {
      const answer = await call('GET', path);
      expect(answer.status).toBe(200);
      expect(answer.json).toEqual({ success: true, name: 'abc', echo: {} });
    },
  );

  it('prefer a fixed path to a parameter, and decode parameters', async () => {
    expect((await call('GET', '/api/things/search')).json).toEqual({ found: 'search' });
    expect((await call('GET', '/api/things/a%2Fb%20%C3%A9/')).json.name).toBe('a/b é');
    expect((await call('GET', '/api/things/%zz%ff/')).status).toBe(200);
  });

  it.each([
    '/',
    '/api',
    '/api/',
    '/api/nope/',
    '/api/things/a/b/',
    '/API/things/a/',
    '/api/things//',
    '//api/things/a',
    '/api/%2e%2e/etc',
  ])('%s is answered 404', async (path) => {
    const { status, json } = await call('GET', path);
    expect(status).toBe(404);
    expect(json).toMatchObject({ detail: 'Not found.', code: 'not_found', status: 404 });
  });

  it('answer a wrong method 405 with the allowed ones', async () => {
    for (const path of ['/api/things/a/', '/api/things/a']) {
      const { status, headers, json } = await call('PATCH', path);
      expect(status).toBe(405);
      expect(headers.get('allow')?.split(', ').toSorted()).toEqual(['GET', 'HEAD', 'OPTIONS']);
      expect(json.detail).toBe('Method "PATCH" not allowed.');
    }
    expect((await call('GET', '/api/things/')).headers.get('allow')).toBe('POST, OPTIONS');
    expect((await call('HEAD', '/api/things/')).status).toBe(405);
  });

  it('answer HEAD as GET without a body', async () => {
    const [head, get] = [await call('HEAD', '/api/things/a/'), await call('GET', '/api/things/a/')];
    expect(head.status).toBe(200);
    expect(head.text).toBe('');
    expect(head.headers.get('content-length')).toBe(get.headers.get('content-length'));
  });

  it('answer OPTIONS with the allowed methods', async () => {
    const { status, headers, text } = await call('OPTIONS', '/api/things/');
    expect([status, text, headers.get('allow')]).toEqual([204, '', 'POST, OPTIONS']);
    expect((await call('OPTIONS', '/api/nope/')).status).toBe(404);
  });
});

describe('a cached answer', () => {
  const times = async (path: string): Promise<number> => (await call('GET', path)).json.times;

  it('is served, as it was, while chain data is unchanged', async () => {
    state = 'one';
    const first = await call('GET', '/api/cached/ann/?x=%F0%9F%90%88');
    const again = await call('GET', '/api/cached/ann/?x=%F0%9F%90%88');
    expect(again.text).toBe(first.text);
    expect(first.json).toEqual({ times: asked, name: 'ann' });
    for (const name of ['content-type', 'content-length', 'cache-control']) {
      expect(again.headers.get(name)).toBe(first.headers.get(name));
    }
    expect(first.headers.get('content-type')).toBe(
      (await call('GET', '/api/things/a/')).headers.get('content-type'),
    );
    expect(again.headers.get('x-request-id')).not.toBe(first.headers.get('x-request-id'));
    expect((await call('HEAD', '/api/cached/ann/?x=%F0%9F%90%88')).headers.get('content-length')).toBe(
      String(first.text.length),
    );
    expect(await times('/api/cached/ann/?x=%F0%9F%90%88')).toBe(first.json.times);
  });

  it('is served for the same query, state and height only', async () => {
    state = 'two';
    const first = await times('/api/cached/ann/');
    expect(await times('/api/cached/bob/')).toBe(first + 1);
    expect(await times('/api/cached/ann/?page=2')).toBe(first + 2);
    state = 'three';
    expect(await times('/api/cached/ann/')).toBe(first + 3);
    height = 7;
    expect(await times('/api/cached/ann/')).toBe(first + 4);
    expect(await times('/api/cached/ann/')).toBe(first + 4);
    height = null;
  });

  it('is not stored with an unknown state, noStore, or a status other than 200', async () => {
    for (const [now, path] of [
      [null, '/api/cached/ann/'],
      ['four', '/api/cached/nobody/'],
      ['four', '/api/cached/ann/?status=202'],
    ] as const) {
      state = now;
      const first = await times(path);
      expect(await times(path)).toBe(first + 1);
    }
    state = null;
  });

  it('must be read within a minute', async () => {
    state = 'five';
    await call('GET', '/api/cached/large/');
    const made = asked;
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    try {
      const accepted = once(server, 'connection');
      const client = connect(port, '127.0.0.1').pause();
      client.on('error', () => {});
      client.write('GET /api/cached/large/ HTTP/1.1\r\nHost: x\r\n\r\n');
      const [ours] = await accepted;
      await vi.waitFor(() => expect(ours.bytesWritten).toBeGreaterThan(0));
      vi.advanceTimersByTime(59_000);
      expect([asked, ours.destroyed]).toEqual([made, false]);
      vi.advanceTimersByTime(1000);
      expect(ours.destroyed).toBe(true);
      client.destroy();
    } finally {
      vi.useRealTimers();
      state = null;
    }
  });
});

describe('equal requests of one user at a time', () => {
  const path = '/api/cached/ann/';
  let open = (): void => {};
  let fail = (_error: Error): void => {};
  let before = 0;
  /** Resolves when so many requests have begun since the last test, and are answered or wait. */
  const arrived = async (count: number): Promise<void> => {
    await vi.waitFor(() => expect(begun).toBe(count), { interval: 1 });
    await turn();
  };

  beforeEach(() => {
    state = `under way ${asked}`;
    before = asked;
    begun = 0;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    promise.catch(() => {});
    open = resolve;
    fail = reject;
    gate = async (signal) =>
      await Promise.race([promise, once(signal, 'abort').then(() => signal.throwIfAborted())]);
  });
  afterEach(() => {
    gate = null;
    state = null;
  });

  it('wait for the answer of the first', async () => {
    const all = [1, 2, 3].map(async () => await call('GET', path));
    await arrived(3);
    open();
    const [first, ...others] = await Promise.all(all);
    expect(asked).toBe(before + 1);
    expect(first?.json).toEqual({ times: before + 1, name: 'ann' });
    for (const other of others) {
      expect([other.status, other.text]).toEqual([200, first?.text]);
      expect(other.headers.get('content-type')).toBe(first?.headers.get('content-type'));
    }
  });

  it('are answered each by itself where the user or the query differ', async () => {
    const all = [
      call('GET', path),
      call('GET', path, { headers: { 'x-forwarded-for': '198.51.100.7' } }),
      call('GET', `${path}?page=2`),
    ];
    await arrived(3);
    expect(asked).toBe(before + 3);
    open();
    expect((await Promise.all(all)).map(({ status }) => status)).toEqual([200, 200, 200]);
  });

  it('fail as the first fails', async () => {
    const all = [1, 2].map(async () => await call('GET', path));
    await arrived(2);
    fail(new HttpError(503, 'overloaded', 'Too many.', { headers: { 'Retry-After': '7' } }));
    for (const { status, headers } of await Promise.all(all))
      expect([status, headers.get('retry-after')]).toEqual([503, '7']);
    expect(asked).toBe(before + 1);
    gate = null;
    expect((await call('GET', path)).status).toBe(200);
  });

  it('are answered after the client of the first has left', async () => {
    const leaving = new AbortController();
    const left = call('GET', path, { signal: leaving.signal }).catch(() => {});
    await arrived(1);
    const other = call('GET', path);
    await arrived(2);
    leaving.abort();
    await left;
    await vi.waitFor(() => expect(asked).toBe(before + 2), { interval: 1 });
    open();
    expect((await other).json.times).toBe(before + 2);
  });

  it('wait for the answer of the first when they go on together', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    held = promise;
    const all = [1, 2, 3].map(async () => await call('GET', path));
    await arrived(3);
    expect(asked).toBe(before);
    resolve();
    held = null;
    open();
    expect((await Promise.all(all)).map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(asked).toBe(before + 1);
  });

  it.each([
    ['nobody/', 1],
    ['ann/?status=202', 2],
  ])('%s: %i are made where the first is not to be stored', async (of, made) => {
    const all = [1, 2].map(async () => await call('GET', `/api/cached/${of}`));
    await arrived(2);
    open();
    const times = (await Promise.all(all)).map(({ json }) => json.times);
    expect(new Set(times).size).toBe(made);
    expect(asked).toBe(before + made);
    // Another request later makes its own.
    gate = null;
    expect((await call('GET', `/api/cached/${of}`)).json.times).toBe(before + made + 1);
  });
});

describe('query', () => {
  it('is parsed as declared; empty, repeated and unknown parameters are tolerated', async () => {
    const { json } = await call('GET', '/api/things/a/?token=0XAB&block=&hidden=no&hidden=Yes&unknown=1');
    expect(json.echo).toEqual({ token: `0x${'ab'.padStart(64, '0')}`, hidden: true });
  });

  it('is rejected with the names of all invalid parameters', async () => {
    const { status, json } = await call('GET', '/api/things/a/?token=x&block=-1&hidden=maybe');
    expect(status).toBe(400);
    expect(json).toEqual({
      success: false,
      detail:
        'token: Enter a valid address (0x and up to 64 hex digits). block: Ensure this value is greater than or equal to 0. hidden: Must be a valid boolean.',
      code: 'invalid',
      status: 400,
      request_id: expect.any(String),
      errors: {
        token: ['Enter a valid address (0x and up to 64 hex digits).'],
        block: ['Ensure this value is greater than or equal to 0.'],
        hidden: ['Must be a valid boolean.'],
      },
    });
  });
});

describe('bodies', () => {
  it('are parsed as declared', async () => {
    const { status, json, headers } = await post('{"name":" abc ","unknown":[]}');
    expect([status, json, headers.get('location')]).toEqual([201, { name: 'abc' }, '/api/things/x/']);
    const none = await post('{"name":"nothing"}');
    expect([none.status, none.text, none.headers.get('content-type')]).toEqual([204, '', null]);
    expect((await post('{"name":"a"}', 'application/vnd.x+json; charset=utf-8')).status).toBe(201);
  });

  it.each([
    ['{}', { name: ['This field is required.'] }],
    ['{"name":null}', { name: ['This field may not be null.'] }],
    ['{"name":""}', { name: ['This field may not be blank.'] }],
    ['{"name":"  "}', { name: ['This field may not be blank.'] }],
    ['{"name":5}', { name: ['Not a valid string.'] }],
    ['{"name":["a"]}', { name: ['Not a valid string.'] }],
    ['{"name":"a\\u0000b"}', { name: ['Null characters are not allowed.'] }],
    ['{"name":"a\\ud800b"}', { name: ['Surrogate characters are not allowed.'] }],
    ['{"name":"12345678901"}', { name: ['Ensure this field has no more than 10 characters.'] }],
    ['{"name":"a","size":"5"}', { size: ['A valid integer is required.'] }],
    ['{"name":"a","size":1.5}', { size: ['A valid integer is required.'] }],
    ['{"name":"a","size":true}', { size: ['A valid integer is required.'] }],
    ['{"name":"a","size":1e400}', { size: ['A valid integer is required.'] }],
    ['{"name":"a","size":0}', { size: ['Ensure this value is greater than or equal to 1.'] }],
    ['{"name":"a","size":10}', { size: ['Ensure this value is less than or equal to 9.'] }],
    ['[]', { non_field_errors: ['Invalid data. Expected a dictionary, but got list.'] }],
    ['"text"', { non_field_errors: ['Invalid data. Expected a dictionary, but got str.'] }],
    ['null', { non_field_errors: ['This field may not be null.'] }],
  ])('%s names the field', async (body, errors) => {
    const { status, json } = await post(body);
    expect(status).toBe(400);
    expect(json.errors).toEqual(errors);
    expect(json.success).toBeUndefined();
  });

  it.each([
    '{',
    '{"name":"pass-word"',
    'name=a',
    '\u0000',
    "{'name':'a'}",
    '{"name":"a"} x',
    'NaN',
    '{"__proto__":{"name":"a"}}',
  ])('%j is no JSON, and is not repeated', async (body) => {
    const { status, json } = await post(body);
    expect(status).toBe(400);
    expect(json).toMatchObject({
      detail: 'JSON parse error - the request body is not valid JSON.',
      code: 'parse_error',
    });
  });

  it('may be absent, which means an empty object', async () => {
    const { status, json } = await call('POST', '/api/things/');
    expect([status, json.errors]).toEqual([400, { name: ['This field is required.'] }]);
  });

  it.each([
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'nonsense',
    null,
  ])('of type %s are answered 415', async (type) => {
    const { status, json } = await post(new Uint8Array(Buffer.from('{"name":"a"}')), type);
    expect(status).toBe(415);
    expect(json.detail).toMatch(/^Unsupported media type "[^"]*" in request\.$/);
  });

  it('over 1 MiB are answered 413, with or without Content-Length, compressed or not', async () => {
    const fits = `{"name":"a","x":"${'y'.repeat(1_048_576 - 19)}"}`;
    expect(fits.length).toBe(1_048_576);
    expect((await post(fits)).status).toBe(201);
    expect((await post(`${fits} `)).status).toBe(413);
    const { gzipSync } = await import('node:zlib');
    const packed = await call('POST', '/api/things/', {
      body: new Uint8Array(gzipSync(`${fits} `)),
      headers: { 'content-type': 'application/json', 'content-encoding': 'gzip' },
    });
    expect(packed.status).toBe(413);
    const chunked = await call('POST', '/api/things/', {
      body: new Blob([`${fits} `]).stream(),
      headers: { 'content-type': 'application/json' },
      duplex: 'half',
    } as RequestInit);
    expect(chunked.status).toBe(413);
  });

  it('far over 1 MiB are answered, and the connection stays open until the client has sent all', async () => {
    const size = 8 * 1_048_576;
    const answer = await new Promise<string>((resolve, reject) => {
      const socket = connect(port, '127.0.0.1');
      let text = '';
      socket.on('data', (chunk) => (text += String(chunk)));
      socket.on('close', () => resolve(text));
      socket.on('error', reject);
      socket.write(
        `POST /api/things/ HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${size}\r\n\r\n`,
      );
      const part = Buffer.alloc(size / 8, 0x20);
      const send = (left: number): void => {
        if (left > 0) socket.write(part, () => setTimeout(send, 20, left - 1));
        else socket.write('GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
      };
      send(8);
    });
    expect(answer).toMatch(/^HTTP\/1\.1 413 [^]*HTTP\/1\.1 200 /);
  });

  it('that arrive slowly delay no others of their address', async () => {
    const head = 'POST /api/things/ HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';
    const slow = [1, 2].map(() => {
      const socket = connect(port, '127.0.0.1');
      socket.write(`${head}Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n`);
      return socket;
    });
    let began = 0;
    server.on('request', () => (began += 1));
    await expect.poll(() => began).toBe(slow.length);
    expect((await post(`{"name":"a","x":"${'y'.repeat(70_000)}"}`)).status).toBe(201);
    for (const socket of slow) socket.destroy();
  }, 30_000);

  it('that arrive slowly are limited for all IPv6 addresses of a /64 together', async () => {
    const head = 'POST /api/things/ HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';
    const answers: string[] = [];
    const slow = Array.from({ length: 21 }, (_, i) => {
      const socket = connect(port, '127.0.0.1');
      socket.on('data', (chunk) => answers.push(String(chunk)));
      socket.write(
        `${head}X-Forwarded-For: 2001:db8::${i + 1}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n`,
      );
      return socket;
    });
    try {
      // Before five seconds, after which each would be too slow by itself.
      await vi.waitFor(() => expect(answers).toHaveLength(1), { timeout: 4000 });
      expect(answers[0]).toMatch(/^HTTP\/1\.1 408 /);
    } finally {
      for (const socket of slow) socket.destroy();
    }
  });

  it('in an unknown encoding are answered 415; JSON is UTF-8 regardless of its Content-Type', async () => {
    expect((await post('{"name":"é"}', 'application/json; charset=klingon')).json).toEqual({ name: 'é' });
    const odd = await call('POST', '/api/things/', {
      body: '{}',
      headers: { 'content-type': 'application/json', 'content-encoding': 'sparkle' },
    });
    expect(odd.status).toBe(415);
  });

  it('of a hundred thousand brackets are parsed or rejected, not fatal', async () => {
    const { status } = await post(`{"name":"a","x":${'['.repeat(100_000)}${']'.repeat(100_000)}}`);
    expect([201, 400]).toContain(status);
    expect((await call('GET', '/healthz')).status).toBe(200);
  });
});

describe('errors', () => {
  it('reveal no internals', async () => {
    const { status, json } = await call('GET', '/api/broken/bug/');
    expect(status).toBe(500);
    expect(json).toEqual({
      detail: 'Server Error (500)',
      code: 'error',
      status: 500,
      request_id: expect.any(String),
    });
  });

  it('that are retryable are answered 503 with Retry-After', async () => {
    const away = await call('GET', '/api/broken/away/');
    expect([away.status, away.headers.get('retry-after')]).toEqual([503, '2']);
    expect(away.text).not.toContain('10.0.0.1');
    const late = await call('GET', '/api/broken/late/');
    expect([late.status, late.json.code, late.headers.get('retry-after')]).toEqual([
      503,
      'command_timeout',
      '2',
    ]);
  });

  it('may have additional fields', async () => {
    const { status, json } = await call('GET', '/api/broken/teapot/');
    expect([status, json.detail, json.stout]).toEqual([418, 'Short.', true]);
  });

  it('include an answer that does not match its declaration', async () => {
    expect((await call('GET', '/api/broken/answer/')).status).toBe(500);
  });
});

describe('a client that disconnects before its answer is made', () => {
  it('leaves no timer', async () => {
    const timers = vi.spyOn(globalThis, 'setInterval');
    lines.length = 0;
    let begin = (): void => {};
    const began = new Promise<void>((resolve) => (begin = resolve));
    gate = async (signal) => {
      begin();
      await once(signal, 'abort');
    };
    const client = connect(port, '127.0.0.1');
    client.write('GET /api/cached/ann/ HTTP/1.1\r\nHost: x\r\n\r\n');
    await began;
    client.destroy();
    await vi.waitFor(() => expect(lines.join('')).toContain('"request"'));
    gate = null;
    const everySecond = timers.mock.calls.filter(([, ms]) => ms === 1000);
    timers.mockRestore();
    expect(everySecond).toEqual([]);
  });
});

it('disconnects only a client that reads little while others wait for the place of its request', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const open = async (query: string) => {
    const accepted = once(server, 'connection');
    const socket = connect(port, '127.0.0.1').pause();
    socket.on('error', () => {});
    socket.write(`GET /api/cached/large/${query} HTTP/1.1\r\nHost: x\r\n\r\n`);
    const [ours] = await accepted;
    // Not `vi.waitFor`, which advances the fake clock.
    while (ours.bytesWritten === 0) await turn();
    return { socket, ours };
  };
  const clients = [await open(''), await open('?wanted=true'), await open('?wanted=true')] as const;
  try {
    const [, , { socket, ours }] = clients;
    // First the kernel takes some MB for each.
    for (let seconds = 0; seconds < 20; seconds += 5) {
      const enough = Math.min(ours.bytesWritten + 1_500_000, 20_000_000);
      for (; ours.bytesWritten < enough && !ours.destroyed; await turn()) socket.read();
      vi.advanceTimersByTime(5000);
    }
    expect(clients.map((client) => client.ours.destroyed)).toEqual([false, true, false]);
  } finally {
    vi.useRealTimers();
    for (const { socket } of clients) socket.destroy();
    await vi.waitFor(() => expect(clients.every(({ ours }) => ours.destroyed)).toBe(true));
  }
});

it('answers 503 while clients have not read what is held for them, and again once they have left', async () => {
  // Cached, so that it is made once.
  state = 'held';
  const path = '/api/cached/large/';
  const fitting = Math.floor((HELD_MIB_PER_USER * 1_048_576) / 20_000_000);
  const clients = Array.from({ length: fitting }, () => connect(port, '127.0.0.1').pause());
  try {
    const begun = clients.map(async (client) => {
      client.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
      await once(client, 'readable');
    });
    await Promise.all(begun);
    const refused = await call('GET', path);
    expect([refused.status, refused.json.code, refused.headers.get('retry-after')]).toEqual([
      503,
      'overloaded',
      '5',
    ]);
    expect((await call('GET', '/api/things/small/')).status).toBe(200);
  } finally {
    for (const client of clients) client.destroy();
  }
  await vi.waitFor(async () => expect((await call('GET', path)).status).toBe(200), { timeout: 30_000 });
  state = null;
});

describe('headers', () => {
  it('repeat a valid request id, and create one otherwise', async () => {
    const id = async (sent?: string) =>
      (
        await call('GET', '/api/nope', sent === undefined ? {} : { headers: { 'X-Request-Id': sent } })
      ).headers.get('x-request-id');
    expect(await id('abc-123')).toBe('abc-123');
    expect(await id('a b')).toMatch(/^[0-9a-f-]{36}$/);
    expect(await id('x'.repeat(129))).toMatch(/^[0-9a-f-]{36}$/);
    expect(await id()).toMatch(/^[0-9a-f-]{36}$/);
  });

  it('name the indexed block once there is one', async () => {
    expect((await call('GET', '/api/things/a/')).headers.get('x-indexed-block')).toBeNull();
    expect((await call('GET', '/readyz')).status).toBe(503);
    height = 0;
    expect((await call('GET', '/api/things/a/')).headers.get('x-indexed-block')).toBe('0');
    expect((await call('GET', '/api/nope')).headers.get('x-api-version')).toBe('1.0.0');
    await expect.poll(async () => (await call('GET', '/readyz')).status).toBe(200);
  });

  it('allow any origin, on errors too, and answer a preflight without a key', async () => {
    for (const path of ['/api/things/a/', '/api/nope/']) {
      const { headers } = await call('GET', path, { headers: { Origin: 'https://a.test' } });
      expect(headers.get('access-control-allow-origin')).toBe('*');
      const exposed = headers.get('access-control-expose-headers')?.split(',');
      expect(exposed).toEqual(expect.arrayContaining(['X-Indexed-Block', 'Accept-Ranges', 'Content-Range']));
    }
    const preflight = await call('OPTIONS', '/api/things/', {
      headers: {
        Origin: 'https://a.test',
        'Access-Control-Request-Method': 'POST',
        'Access-Control-Request-Headers': 'api-key,content-type',
      },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get('access-control-allow-headers')).toBe('api-key,content-type');
    expect(preflight.headers.get('access-control-allow-methods')).toContain('DELETE');
    expect(
      (await call('GET', '/healthz', { headers: { Origin: 'https://a.test' } })).headers.get(
        'access-control-allow-origin',
      ),
    ).toBeNull();
  });

  it('forbid content sniffing and framing', async () => {
    const { headers } = await call('GET', '/api/things/a/');
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('cache-control')).toBe('no-store');
  });
});

describe('the request log', () => {
  it('has the route, never the path, query, headers or bodies', async () => {
    lines.length = 0;
    await call('GET', '/api/things/path-secret/?token=query-secret', {
      headers: {
        'api-key': 'key-secret',
        Authorization: 'Bearer bearer-secret',
        'X-Forwarded-For': '198.51.100.1',
      },
    });
    await post('{"name":"body-secret","size":"x"}');
    await post('{"name":"body-secret');
    const log = lines.join('');
    expect(log).not.toContain('secret');
    const [first] = lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'request');
    expect(first).toMatchObject({
      method: 'GET',
      route: '/api/things/{name}/',
      status: 400,
      ip: '198.51.100.1',
    });
  });

  it('is counted by route and status', async () => {
    await call('GET', '/api/things/counted/');
    const text = await metrics.metrics();
    const counted = text
      .split('\n')
      .filter((line) => line.startsWith('tds_http_request_seconds_count'))
      .map((line) => new Set(line.slice(line.indexOf('{') + 1, line.indexOf('} ')).split(/,(?=[a-z]+=)/)));
    expect(counted).toContainEqual(
      new Set(['role="api"', 'method="GET"', 'route="/api/things/{name}/"', 'status="200"']),
    );
    expect(text).not.toContain('counted');
  });
});

describe('the OpenAPI document', () => {
  it('is not serialized anew for a request', async () => {
    const stringify = vi.spyOn(JSON, 'stringify');
    const { headers, text } = await call('GET', '/api/openapi.json');
    const head = await call('HEAD', '/api/openapi.json');
    const serialized = stringify.mock.results.filter(({ value }) => value === text);
    stringify.mockRestore();
    expect(serialized).toEqual([]);
    for (const answer of [headers, head.headers]) {
      expect(answer.get('content-type')).toBe('application/json; charset=utf-8');
      expect(answer.get('content-length')).toBe(String(Buffer.byteLength(text)));
    }
  });

  it('describes every route as declared', async () => {
    const { json } = await call('GET', '/api/openapi.json');
    expect(json.openapi).toMatch(/^3\.1\./);
    expect(Object.keys(json.paths)).toEqual([
      '/api/things/{name}/',
      '/api/slowly/',
      '/api/things/search/',
      '/api/cached/{name}/',
      '/api/things/',
      '/api/numbers/{count}/',
      '/api/lists/{count}/',
      '/api/broken/{how}/',
    ]);
    const get = json.paths['/api/things/{name}/'].get;
    expect(
      get.parameters.map(({ name, in: place, required }: Record<string, unknown>) => [name, place, required]),
    ).toEqual([
      ['name', 'path', true],
      ['token', 'query', undefined],
      ['block', 'query', undefined],
      ['hidden', 'query', undefined],
      ['X-Min-Block', 'header', undefined],
    ]);
    expect(get.parameters[1].schema.pattern).toBe('^0[xX][0-9a-fA-F]{1,64}$');
    expect(get.parameters[2].schema.type).toBe('integer');
    expect(Object.keys(json.paths['/api/things/'].post.responses)).toEqual(
      expect.arrayContaining(['201', '204', '400', '413', '415', '503']),
    );
  });
});

describe('bytes that are not HTTP', () => {
  const exchange = (bytes: string): Promise<string> =>
    new Promise((resolve, reject) => {
      const socket = connect(port, '127.0.0.1', () => socket.write(bytes));
      let text = '';
      socket.on('data', (chunk) => (text += String(chunk)));
      socket.on('close', () => resolve(text));
      socket.on('error', reject);
    });

  it.each([
    ['GARBAGE\r\n\r\n', 400, 'bad_request'],
    ['GET /api/things/a HTTP/1.1\r\nHost: x\r\nX: \u0000\r\n\r\n', 400, 'bad_request'],
    ['GET /\u0000 HTTP/1.1\r\nHost: x\r\n\r\n', 400, 'bad_request'],
    [`GET /?${'x'.repeat(2_000_000)} HTTP/1.1\r\nHost: x\r\n\r\n`, 431, 'headers_too_large'],
  ])('%.40j are answered like any other error', async (bytes, status, code) => {
    const [head = '', body = ''] = (await exchange(bytes)).split('\r\n\r\n');
    const [line, ...headers] = head.toLowerCase().split('\r\n');
    expect(line).toMatch(`http/1.1 ${status} `);
    const id = headers.find((header) => header.startsWith('x-request-id: '))?.slice('x-request-id: '.length);
    expect(JSON.parse(body)).toEqual({ detail: expect.any(String), code, status, request_id: id });
    expect((await call('GET', '/healthz')).status).toBe(200);
  });
});
