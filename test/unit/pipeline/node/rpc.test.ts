import { createServer } from 'node:http';
import type { IncomingHttpHeaders, RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';

import { afterEach, describe, expect, test } from 'vitest';

import { systemClock } from '../../../../infra/clock.ts';
import type { Clock } from '../../../../infra/clock.ts';
import { createMetrics } from '../../../../infra/metrics.ts';
import { createNodeMetrics } from '../../../../pipeline/node/metrics.ts';
import { createRpc } from '../../../../pipeline/node/rpc.ts';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

type Answer = (
  call: { id: number; method: string; headers: IncomingHttpHeaders },
  count: number,
  isBatch: boolean,
) => { status?: number; headers?: Record<string, string>; body: string } | 'hang' | 'reset';

async function rpcTo(
  answer: Answer,
  {
    userinfo = '',
    path = '',
    port,
    ...options
  }: {
    userinfo?: string;
    path?: string;
    port?: number;
    attempts?: number;
    timeoutMs?: number;
    maxAnswerBytes?: number;
    clock?: Clock;
  } = {},
) {
  const slept: number[] = [];
  let count = 0;
  const listener: RequestListener = (request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      count += 1;
      const call: unknown = JSON.parse(Buffer.concat(chunks).toString());
      const first = (Array.isArray(call) ? call[0] : call) as { id: number; method: string };
      const reply = answer({ ...first, headers: request.headers }, count, Array.isArray(call));
      if (reply === 'hang') return;
      if (reply === 'reset') {
        response.destroy();
        return;
      }
      // Without Accept-Encoding, a server may use any.
      const isPlain = request.headers['accept-encoding'] === 'identity';
      const headers = { ...reply.headers, ...(isPlain ? {} : { 'content-encoding': 'gzip' }) };
      response.writeHead(reply.status ?? 200, headers).end(isPlain ? reply.body : gzipSync(reply.body));
    });
  };
  const server = createServer(listener);
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port: served } = server.address() as AddressInfo;
  const rpc = createRpc({
    url: `http://${userinfo}127.0.0.1:${port ?? served}${path}`,
    timeoutMs: 2000,
    maxConcurrent: 2,
    attempts: 4,
    clock: { ...systemClock, sleep: async (ms) => void slept.push(ms) },
    metrics: createNodeMetrics(createMetrics('test')),
    ...options,
  });
  closers.push(async () => {
    await rpc.close();
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  });
  return { rpc, slept, calls: () => count };
}

const ok = (id: number, result: unknown) => ({ body: JSON.stringify({ jsonrpc: '2.0', id, result }) });
const ask = { method: 'm', params: {}, parse: (result: unknown) => result };

describe('call retries', () => {
  test.each<[string, Answer]>([
    ['HTTP 503', ({ id }, count) => (count < 3 ? { status: 503, body: '' } : ok(id, 1))],
    ['HTTP 429', ({ id }, count) => (count < 3 ? { status: 429, body: '' } : ok(id, 1))],
    ...[
      ['a rate limit', 200, 429],
      ['no node of the provider for the call', 400, 12],
      ['a call that the provider cancelled', 200, 14],
      ['an internal error of the provider', 200, 19],
      ['an internal error of Madara', 200, 500],
      ['an unavailable node of a gateway', 200, 503],
    ].map(([what, status, code]): [string, Answer] => [
      `${what} in HTTP ${status}`,
      ({ id }, count) =>
        count < 3
          ? {
              status: Number(status),
              body: JSON.stringify({ jsonrpc: '2.0', id, error: { code, message: 'x' } }),
            }
          : ok(id, 1),
    ]),
    ['a reset connection', ({ id }, count) => (count < 3 ? 'reset' : ok(id, 1))],
    ['truncated JSON', ({ id }, count) => (count < 3 ? { body: ok(id, 1).body.slice(0, 9) } : ok(id, 1))],
    ['an empty answer', ({ id }, count) => (count < 3 ? { body: '' } : ok(id, 1))],
    ['an answer for another call', ({ id }, count) => ok(count < 3 ? id + 99 : id, 1)],
    [
      'an internal error',
      ({ id }, count) =>
        count < 3
          ? { body: JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32603, message: 'x' } }) }
          : ok(id, 1),
    ],
  ])('%s', async (_, answer) => {
    const { rpc, calls } = await rpcTo(answer);
    expect(await rpc.call(ask)).toBe(1);
    expect(calls()).toBe(3);
  });

  test('a time-out, until the attempts are used up', async () => {
    const { rpc, calls } = await rpcTo(() => 'hang', { timeoutMs: 100 });
    await expect(rpc.call(ask)).rejects.toMatchObject({ code: 'NODE_UNREACHABLE', retryable: true });
    expect(calls()).toBe(4);
  });

  test('no sooner than Retry-After asks for', async () => {
    const { rpc, slept } = await rpcTo(({ id }, count) =>
      count === 1 ? { status: 429, headers: { 'retry-after': '2' }, body: '' } : ok(id, 1),
    );
    await rpc.call(ask);
    expect(slept).toHaveLength(1);
    expect(slept[0]).toBeGreaterThanOrEqual(2000);
  });
});

test('a date of Retry-After counts from the time of the clock, also after the machine was suspended', async () => {
  const wallTime = Date.UTC(2026, 0, 1);
  const slept: number[] = [];
  const { rpc } = await rpcTo(
    ({ id }, count) =>
      count === 1
        ? { status: 429, headers: { 'retry-after': new Date(wallTime + 4000).toUTCString() }, body: '' }
        : ok(id, 1),
    {
      clock: {
        ...systemClock,
        now: () => wallTime - 7_200_000,
        wallTime: () => wallTime,
        sleep: async (ms) => void slept.push(ms),
      },
    },
  );
  await rpc.call(ask);
  expect(slept).toEqual([4000]);
});

test.each([
  ['no credentials', '', undefined],
  ['a user and a password', 'us%40er:p%3Aw@', `Basic ${btoa('us@er:p:w')}`],
  ['a password alone', ':secret@', `Basic ${btoa(':secret')}`],
  ['a password with a bare %', 'user:100%@', `Basic ${btoa('user:100%')}`],
])('sends %s of its URL', async (_, userinfo, authorization) => {
  const { rpc } = await rpcTo(({ id, headers }) => ok(id, headers.authorization ?? null), { userinfo });
  expect(await rpc.call(ask)).toBe(authorization ?? null);
});

describe('call does not retry', () => {
  test.each([20, 21, 24, 40, -32601, -32602])('JSON-RPC error %i, and keeps its code', async (code) => {
    const { rpc, calls } = await rpcTo(({ id }) => ({
      body: JSON.stringify({ jsonrpc: '2.0', id, error: { code, message: 'no', data: { why: 1 } } }),
    }));
    await expect(rpc.call(ask)).rejects.toMatchObject({
      code: 'NODE_ERROR',
      rpcCode: code,
      retryable: false,
      data: { why: 1 },
    });
    expect(calls()).toBe(1);
  });

  test('an answer larger than the limit', async () => {
    const { rpc, calls } = await rpcTo(({ id }) => ok(id, 'x'.repeat(100_000)), { maxAnswerBytes: 10_000 });
    await expect(rpc.call(ask)).rejects.toMatchObject({ code: 'NODE_ANSWER_INVALID', retryable: false });
    expect(calls()).toBe(1);
  });

  test.each<[number, string]>([
    [401, 'no'],
    [403, '{"message":"Forbidden"}'],
    [404, '{"error":"not found"}'],
    [401, '{"error":{"code":"unauthorized"}}'],
    [301, ''],
  ])('HTTP %i with the body %s, and names the status', async (status, body) => {
    const { rpc, calls } = await rpcTo(() => ({ status, body }));
    for (const work of [() => rpc.call(ask), () => rpc.batch([ask, ask])])
      await expect(work()).rejects.toMatchObject({
        code: 'NODE_UNREACHABLE',
        message: `Starknet node unreachable: HTTP ${status}${body === '' ? '' : `; the answer begins with ${body}`}`,
        retryable: false,
      });
    expect(calls()).toBe(2);
  });

  test('HTTP 400 with a JSON-RPC error, and keeps its code', async () => {
    const { rpc } = await rpcTo(({ id }) => ({
      status: 400,
      body: JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32602, message: 'no' } }),
    }));
    await expect(rpc.call(ask)).rejects.toMatchObject({ code: 'NODE_ERROR', rpcCode: -32602 });
  });

  test('an aborted call', async () => {
    const { rpc } = await rpcTo(() => 'hang');
    const stop = new AbortController();
    const call = rpc.call(ask, { signal: stop.signal });
    setTimeout(() => stop.abort(), 50);
    await expect(call).rejects.toMatchObject({ retryable: false });
  });
});

describe('an error of a call', () => {
  const KEY = 'a1b2c3d4e5f6a7b8';
  const errorOf = async (reply: { status?: number; body: string }, options = {}): Promise<unknown> => {
    const { rpc } = await rpcTo(() => reply, { attempts: 1, ...options });
    return await rpc.call(ask).then(
      () => null,
      ({ code, message }) => [code, message],
    );
  };

  test.each([
    [
      '<!DOCTYPE html>\n <html>',
      'the answer is not valid JSON; the answer begins with <!DOCTYPE html> <html>',
    ],
    ['', 'the answer is not valid JSON'],
    ['\x1f\x8b\x08é', 'the answer is not valid JSON; the answer begins with ????'],
    ['{"error":"quota exceeded"}', 'm: no result; the answer begins with {"error":"quota exceeded"}'],
    [
      '{"error":{"code":"LIMIT","message":"slow down"}}',
      'm: the error has no code; the answer begins with {"error":{"code":"LIMIT","message":"slow down"}}',
    ],
    ['{"id":99,"result":1}', 'm: the answer is for another call'],
    ['x'.repeat(500), `the answer is not valid JSON; the answer begins with ${'x'.repeat(120)}…`],
  ])('shows the beginning of an invalid answer: %s', async (body, message) => {
    expect(await errorOf({ body })).toEqual(['NODE_ANSWER_INVALID', message]);
  });

  test.each([
    ['in the path', `/v2/${KEY}`, '', `Cannot POST /v2/${KEY}`, 'Cannot POST /v2/…'],
    ['in the query', `/?apikey=${KEY}`, '', `no project ${KEY}`, 'no project …'],
    ['escaped', `/v2/${KEY}%2B`, '', `no ${KEY}%2B, no ${KEY}+`, 'no …, no …'],
    ['as a password', '', 'me:p%40w@', `p@w is not p%40w; ${btoa('me:p@w')}`, '… is not …; …'],
  ])('shows no secret %s that the answer repeats', async (_, path, userinfo, body, shown) => {
    expect(await errorOf({ status: 404, body }, { path, userinfo })).toEqual([
      'NODE_UNREACHABLE',
      `Starknet node unreachable: HTTP 404; the answer begins with ${shown}`,
    ]);
  });

  test('shows no secret that a JSON-RPC error repeats, and keeps the rest of it', async () => {
    const error = { code: -32602, message: `me: no key ${KEY}`, data: { reason: `see /v2/${KEY}`, at: 1 } };
    const options = { path: `/v2/${KEY}`, userinfo: 'me:p%40w@', attempts: 1 };
    const { rpc } = await rpcTo(({ id }, _count, isBatch) => {
      const answerOf = (each: number) => ({ jsonrpc: '2.0', id: each, error });
      return { body: JSON.stringify(isBatch ? [answerOf(id), answerOf(id + 1)] : answerOf(id)) };
    }, options);
    const shown = {
      message: 'm: me: no key …: see /v2/… (-32602)',
      data: { reason: 'see /v2/…', at: 1 },
    };
    await expect(rpc.call(ask)).rejects.toMatchObject(shown);
    expect(await rpc.batch([ask, ask])).toMatchObject([{ error: shown }, { error: shown }]);
  });

  test.each([429, 500, 503])(
    'of HTTP %i shows the beginning of the answer, without secrets',
    async (status) => {
      expect(await errorOf({ status, body: `limit of ${KEY}\n reached` }, { path: `/v2/${KEY}` })).toEqual([
        'NODE_UNREACHABLE',
        `Starknet node unreachable: HTTP ${status}; the answer begins with limit of … reached`,
      ]);
    },
  );

  test.each([
    ['a text', 'VM throughput limit reached', ': VM throughput limit reached'],
    ['a reason', { reason: 'Invalid block id' }, ': Invalid block id'],
    ['an error', { error: 'pruned' }, ': pruned'],
    ['another object', { why: 1 }, ''],
    ['nothing', undefined, ''],
  ])('has %s of its data in its message', async (_, data, added) => {
    const { rpc } = await rpcTo(({ id }) => ({
      body: JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32602, message: 'Invalid params', data } }),
    }));
    await expect(rpc.call(ask)).rejects.toMatchObject({ message: `m: Invalid params${added} (-32602)` });
  });

  test('names the failure of a connection', async () => {
    const { rpc } = await rpcTo(() => 'hang', { attempts: 1, port: 1 });
    await expect(rpc.call(ask)).rejects.toMatchObject({
      message: 'Starknet node unreachable: connection failed (ECONNREFUSED)',
    });
  });
});

describe('a batch', () => {
  test('matches answers by id in any order, each with its outcome', async () => {
    const { rpc } = await rpcTo(({ id }) => ({
      body: JSON.stringify([
        { jsonrpc: '2.0', id: id + 1, error: { code: 20, message: 'none' } },
        { jsonrpc: '2.0', id, result: 'first' },
      ]),
    }));
    expect(await rpc.batch([ask, ask])).toMatchObject([
      { ok: true, value: 'first' },
      { ok: false, error: { rpcCode: 20 } },
    ]);
  });

  test.each([-32603, -32000])('answers other calls where one has the server fault %i', async (code) => {
    const { rpc, calls } = await rpcTo(({ id }) => ({
      body: JSON.stringify([
        { jsonrpc: '2.0', id, error: { code, message: 'out of memory' } },
        { jsonrpc: '2.0', id: id + 1, result: 2 },
      ]),
    }));
    expect(await rpc.batch([ask, ask])).toMatchObject([
      { ok: false, error: { rpcCode: code } },
      { ok: true, value: 2 },
    ]);
    expect(calls()).toBe(1);
  });

  test.each([-32603, 429])('is retried whole if every call has the server fault %i', async (code) => {
    const { rpc, calls } = await rpcTo(({ id }, count) => ({
      body: JSON.stringify(
        [id, id + 1].map((each) => ({
          jsonrpc: '2.0',
          id: each,
          ...(count < 3 ? { error: { code, message: 'starting' } } : { result: 1 }),
        })),
      ),
    }));
    expect(await rpc.batch([ask, ask])).toMatchObject([{ ok: true }, { ok: true }]);
    expect(calls()).toBe(3);
  });

  /** Answers each call with its id, and an array with an error that has the code. */
  const refusing: (code: number) => Answer =
    (code) =>
    ({ id }, _, isBatch) =>
      isBatch
        ? { body: JSON.stringify({ jsonrpc: '2.0', id: null, error: { code, message: 'no batches' } }) }
        : ok(id, id);

  test.each([-32600, -32700, -32005, -32010, -32011])(
    'is sent as single calls to a node that refuses batches with %i, for ten minutes at once',
    async (code) => {
      let now = 0;
      const { rpc, calls, slept } = await rpcTo(refusing(code), {
        clock: { ...systemClock, now: () => now },
      });
      const values = [1, 2, 3].map(() => ({ ok: true, value: expect.any(Number) }));
      expect(await rpc.batch([ask, ask, ask])).toEqual(values);
      expect(calls()).toBe(4);
      expect(await rpc.batch([ask, ask, ask])).toEqual(values);
      expect(calls()).toBe(7);
      now += 600_000;
      expect(await rpc.batch([ask, ask, ask])).toEqual(values);
      expect(calls()).toBe(11);
      expect(slept).toEqual([]);
    },
  );

  const overPlan = {
    error: { code: 31, message: 'Batch of more than 3 requests are not allowed on free plan' },
  };

  test.each<[string, (id: number) => unknown]>([
    ['a list of one error', (id) => [{ jsonrpc: '2.0', id, ...overPlan }]],
    ['an error of each call', (id) => [0, 1, 2, 3].map((n) => ({ jsonrpc: '2.0', id: id + n, ...overPlan }))],
    ['an error', () => ({ jsonrpc: '2.0', id: null, ...overPlan })],
  ])(
    'is sent as single calls at once to a provider whose plan does not allow its size, with HTTP 500 and %s',
    async (_, refusal) => {
      const { rpc, calls, slept } = await rpcTo(({ id }, _count, isBatch) =>
        isBatch ? { status: 500, body: JSON.stringify(refusal(id)) } : ok(id, id),
      );
      const values = [1, 2, 3, 4].map(() => ({ ok: true, value: expect.any(Number) }));
      expect(await rpc.batch([ask, ask, ask, ask])).toEqual(values);
      expect(await rpc.batch([ask, ask, ask, ask])).toEqual(values);
      expect(calls()).toBe(9);
      expect(slept).toEqual([]);
    },
  );

  test.each([['[]'], ['[{"id":1,"error":{"code":-32603,"message":"x"}}]'], ['']])(
    'is retried whole after HTTP 500 with another body: %s',
    async (body) => {
      const { rpc, calls } = await rpcTo(({ id }, count) =>
        count < 3
          ? { status: 500, body }
          : { body: JSON.stringify([id, id + 1].map((each) => ({ jsonrpc: '2.0', id: each, result: 1 }))) },
      );
      expect(await rpc.batch([ask, ask])).toMatchObject([{ ok: true }, { ok: true }]);
      expect(calls()).toBe(3);
    },
  );

  test('of one call is sent as a single call, whose error is its outcome', async () => {
    const { rpc } = await rpcTo(({ id }, count, isBatch) =>
      count === 1 && !isBatch
        ? ok(id, 1)
        : { body: JSON.stringify({ jsonrpc: '2.0', id, error: { code: 20, message: 'none' } }) },
    );
    expect(await rpc.batch([ask])).toEqual([{ ok: true, value: 1 }]);
    expect(await rpc.batch([ask])).toMatchObject([{ ok: false, error: { rpcCode: 20 } }]);
  });

  test('of one call throws a server fault after its retries', async () => {
    const { rpc, calls } = await rpcTo(({ id }) => ({
      body: JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32603, message: 'x' } }),
    }));
    await expect(rpc.batch([ask])).rejects.toMatchObject({ rpcCode: -32603, retryable: true });
    expect(calls()).toBe(4);
  });

  test('is retried whole if an answer is missing', async () => {
    const { rpc, calls } = await rpcTo(({ id }, count) => ({
      body: JSON.stringify(
        [
          { id, result: 1 },
          { id: id + 1, result: 2 },
        ]
          .slice(0, count)
          .map((one) => ({ jsonrpc: '2.0', ...one })),
      ),
    }));
    expect(await rpc.batch([ask, ask])).toEqual([
      { ok: true, value: 1 },
      { ok: true, value: 2 },
    ]);
    expect(calls()).toBe(2);
  });
});
