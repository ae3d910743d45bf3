import { createServer } from 'node:http';
import type { RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';

import { ClickHouseError } from '@clickhouse/client';
import { afterEach, describe, expect, test } from 'vitest';
import { ZodError, z } from 'zod';

import { createClickHouse, isClickHouseUnavailable } from '../../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../../infra/clickhouse/client.ts';
import { AppError } from '../../../../schemas/errors.ts';

const closers: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close();
});

async function clientOf(answer: RequestListener, timeoutMs = 5000): Promise<ClickHouse> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const clickhouse = createClickHouse(`http://127.0.0.1:${port}`, { application: 'test', timeoutMs });
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  closers.push(() => clickhouse.close());
  return clickhouse;
}

const query = { name: 'test', sql: 'SELECT 1', row: z.object({ one: z.number() }) };
const columns = [{ name: 'one', type: 'UInt32' }] as const;
const requests: [string, (clickhouse: ClickHouse) => Promise<unknown>][] = [
  ['a query', (clickhouse) => clickhouse.rows(query)],
  ['a command', (clickhouse) => clickhouse.command('SELECT 1')],
  ['an insert', (clickhouse) => clickhouse.insert('t', columns, [{ one: 1 }])],
];

const failureOf = async (work: Promise<unknown>): Promise<unknown> =>
  await work.then(
    () => null,
    (error: unknown) => error,
  );

const exception = (code: number, text: string): RequestListener => {
  return (_, response) =>
    response
      .writeHead(500, { 'x-clickhouse-exception-code': String(code) })
      .end(`Code: ${code}. DB::Exception: It failed. (${text}) (version 26.1.1.1)`);
};

describe.each(requests)('%s', (_, request) => {
  test('is retryable when nothing listens', async () => {
    const clickhouse = createClickHouse('http://127.0.0.1:1', { application: 'test' });
    closers.push(() => clickhouse.close());
    expect(isClickHouseUnavailable(await failureOf(request(clickhouse)))).toBe(true);
  });

  test('is retryable when the server does not answer in time', async () => {
    const error = await failureOf(request(await clientOf(() => {}, 100)));
    expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE', retryable: true });
    expect(isClickHouseUnavailable(error)).toBe(true);
  });

  test('is retryable when the server hangs up', async () => {
    const clickhouse = await clientOf((message) => message.socket.destroy());
    expect(isClickHouseUnavailable(await failureOf(request(clickhouse)))).toBe(true);
  });

  test('is retryable when a proxy answers instead of ClickHouse', async () => {
    const clickhouse = await clientOf((_request, response) =>
      response.writeHead(502).end('<html>Bad Gateway</html>'),
    );
    const error = await failureOf(request(clickhouse));
    expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE', retryable: true });
    expect(isClickHouseUnavailable(error)).toBe(true);
  });

  test.each([
    [252, 'TOO_MANY_PARTS', true],
    [241, 'MEMORY_LIMIT_EXCEEDED', true],
    [210, 'NETWORK_ERROR', true],
    [62, 'SYNTAX_ERROR', false],
    [60, 'UNKNOWN_TABLE', false],
    [516, 'AUTHENTICATION_FAILED', false],
  ])('that ends with exception %i %s is retryable: %o', async (code, text, expected) => {
    const error = await failureOf(request(await clientOf(exception(code, text))));
    expect(error).toBeInstanceOf(ClickHouseError);
    expect(isClickHouseUnavailable(error)).toBe(expected);
  });
});

test('a response that is cut off is retryable', async () => {
  const clickhouse = await clientOf((message, response) => {
    response
      .writeHead(200, { 'content-length': '1000' })
      .write('{"one":1}\n', () => message.socket.destroy());
  });
  expect(isClickHouseUnavailable(await failureOf(clickhouse.rows(query)))).toBe(true);
});

test('a query that its caller aborts is not retryable', async () => {
  const clickhouse = await clientOf(() => {});
  const signal = AbortSignal.timeout(50);
  expect(isClickHouseUnavailable(await failureOf(clickhouse.rows(query, {}, { signal })))).toBe(false);
});

test('a response that does not have the shape of its query is not retryable', async () => {
  const answers: [string, string][] = [
    ['{"one":"1"}\n', 'ZodError'],
    ['{"one":1\n', 'SyntaxError'],
  ];
  for (const [body, name] of answers) {
    const clickhouse = await clientOf((_request, response) => response.writeHead(200).end(body));
    const error = await failureOf(clickhouse.rows(query));
    expect(error).toMatchObject({ name });
    expect(isClickHouseUnavailable(error)).toBe(false);
  }
});

test.each([
  new RangeError('Invalid array length'),
  new SyntaxError('Unexpected token'),
  new ReferenceError('x is not defined'),
  new TypeError('x is not a function'),
  new ZodError([]),
  new Error('connection timeout: socket hang up'),
  Object.assign(new Error('write after end'), { code: 'ERR_STREAM_WRITE_AFTER_END' }),
  new AppError('SHAPE_CHANGED', 'connection'),
  new AppError('STORE_UNAVAILABLE', 'PostgreSQL', { details: { store: 'PostgreSQL' } }),
  'ECONNREFUSED',
  null,
])('an unknown error is not retryable: %s', (error) => {
  expect(isClickHouseUnavailable(error)).toBe(false);
});

test.each(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_SOCKET'])(
  'a network error is retryable: %s',
  (code) => {
    expect(isClickHouseUnavailable(Object.assign(new Error('x'), { code }))).toBe(true);
  },
);
