import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';

import type { ClickHouseSettings } from '@clickhouse/client';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { z } from 'zod';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { codeOf, rowsOf, startTestServer } from './clickhouse-server.ts';
import type { TestServer } from './clickhouse-server.ts';

/** Queries by the unmodified client on the embedded server. */
let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server.stop());

const hostile = [
  "it's",
  "''; DROP TABLE t; --",
  '\\',
  "\\'; SELECT 1; --",
  'line\nline\n\nSELECT 1\r\n\ttab',
  '`"{x:String}"`',
  '/* comment */ -- # $a$',
  '‘typographic’ “quotes”',
  'emoji 😀 and ü',
  'nul\u0000byte',
  '',
];

describe('parameters', () => {
  test.each(hostile)('returns the String %j unchanged', async (text) => {
    expect(await rowsOf(server.writer(), 'SELECT {x:String} AS x', { x: text })).toEqual([{ x: text }]);
  });

  test('returns every type that the service binds unchanged', async () => {
    const largest = (1n << 256n) - 1n;
    const [row] = await rowsOf(
      server.writer(),
      `SELECT {u:UInt256} AS u, {i:Int256} AS i, {strings:Array(String)} AS strings, {nothing:Nullable(String)} AS nothing,
              {map:Map(String, String)} AS map, {flag:Bool} AS flag, hex({felt:FixedString(4)}) AS felt`,
      {
        u: largest,
        i: -(1n << 255n),
        strings: hostile.filter((text) => !text.includes('\0')),
        nothing: null,
        map: { "k'1": "v'\\" },
        flag: true,
        felt: 'abcd',
      },
    );
    expect(row).toEqual({
      u: largest.toString(),
      i: (-(1n << 255n)).toString(),
      strings: hostile.filter((text) => !text.includes('\0')),
      nothing: null,
      map: { "k'1": "v'\\" },
      flag: true,
      felt: '61626364',
    });
  });

  test('accepts an Identifier as a column', async () => {
    const query = 'SELECT {column:Identifier} AS x FROM (SELECT 7 AS `odd name`)';
    expect(await rowsOf(server.writer(), query, { column: 'odd name' })).toEqual([{ x: 7 }]);
  });

  test('accepts a parameter of 120,000 bytes, in the URL and in a form', async () => {
    for (const use_multipart_params of [false, true]) {
      const x = 'x'.repeat(120_000);
      const client = server.writer({ use_multipart_params });
      expect(await rowsOf(client, 'SELECT length({x:String}) AS n', { x })).toEqual([
        { n: String(x.length) },
      ]);
    }
  });

  test('names a missing parameter in the error', async () => {
    expect(await codeOf(rowsOf(server.writer(), 'SELECT {missing:String}'))).toBe('456');
  });
});

describe('parameters of our client', () => {
  const echo = (type: string) => ({
    name: 'echo',
    sql: `SELECT {x:${type}} AS x`,
    row: z.object({ x: z.unknown() }),
  });
  let clickhouse: ClickHouse;
  beforeAll(() => {
    clickhouse = createClickHouse(server.service.url, { application: 'test' });
  });
  afterAll(() => clickhouse.close());

  test.each(hostile)('returns the String %j unchanged, also in an array', async (text) => {
    expect(await clickhouse.rows(echo('String'), { x: text })).toEqual([{ x: text }]);
    if (!text.includes('\0')) {
      expect(await clickhouse.rows(echo('Array(String)'), { x: [text, text] })).toEqual([
        { x: [text, text] },
      ]);
    }
  });

  test('returns numbers unchanged', async () => {
    const largest = (1n << 256n) - 1n;
    expect(await clickhouse.rows(echo('UInt256'), { x: largest })).toEqual([{ x: String(largest) }]);
    expect(await clickhouse.rows(echo('Array(UInt32)'), { x: [0, 4_294_967_295] })).toEqual([
      { x: [0, 4_294_967_295] },
    ]);
  });

  test('accepts parameters of 120,000 bytes', async () => {
    const x = Array.from({ length: 1000 }, (_, i) => `${i}`.padEnd(117, 'x'));
    expect(await clickhouse.rows(echo('Array(String)'), { x })).toEqual([{ x }]);
  });
});

describe('answers', () => {
  test('have the requested format', async () => {
    const client = server.writer();
    const query = 'SELECT number AS n FROM numbers(3)';
    const json = await (await client.query({ query, format: 'JSON' })).json<{ n: string }>();
    expect(json.rows).toBe(3);
    expect(await (await client.query({ query, format: 'CSV' })).text()).toBe('0\n1\n2\n');
    expect(await (await client.query({ query, format: 'TabSeparatedWithNames' })).text()).toBe(
      'n\n0\n1\n2\n',
    );
    const binary = await client.exec({ query: `${query} FORMAT RowBinary` });
    const chunks: Buffer[] = [];
    for await (const chunk of binary.stream) chunks.push(Buffer.from(chunk));
    expect(Buffer.concat(chunks).toString('hex')).toBe('000000000000000001000000000000000200000000000000');
  });

  test('of many blocks are one document, or a stream with every row once', async () => {
    const query = 'SELECT number AS n FROM numbers(300000)';
    const client = server.writer();
    const document = await (await client.query({ query, format: 'JSONCompact' })).json<[number]>();
    expect(document.rows).toBe(300_000);
    expect(document.data).toHaveLength(300_000);
    let sum = 0;
    for await (const rows of (await client.query({ query, format: 'JSONCompactEachRow' })).stream()) {
      for (const row of rows) sum += Number((row.json<[number]>() as [number])[0]);
    }
    expect(sum).toBe((300_000 * 299_999) / 2);
  });

  test.each(['gzip', 'zstd'] as const)('are compressed with %s', async (codec) => {
    const client = server.writer({ compression: { response: { codec } } });
    const result = await client.query({
      query: 'SELECT number AS n FROM numbers(100000)',
      format: 'JSONEachRow',
    });
    expect(result.response_headers['content-encoding']).toBe(codec);
    expect(await result.json()).toHaveLength(100_000);
  });

  test('may be empty, or end with TOTALS', async () => {
    expect(await rowsOf(server.writer(), 'SELECT 1 AS x WHERE 0')).toEqual([]);
    const totals = await server.writer().query({
      query: 'SELECT number % 2 AS k, count() AS n FROM numbers(10) GROUP BY k WITH TOTALS ORDER BY k',
      format: 'TabSeparated',
    });
    expect(await totals.text()).toBe('0\t5\n1\t5\n\n0\t10\n');
  });

  test('reach their own callers', async () => {
    const client = server.writer({ max_open_connections: 40 });
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, i) => rowsOf(client, 'SELECT {i:UInt32} AS i', { i })),
    );
    expect(answers.flat()).toEqual(Array.from({ length: 200 }, (_, i) => ({ i })));
  });
});

describe('errors', () => {
  test.each([
    ['SELECT * FROM nothing_here', '60', 'UNKNOWN_TABLE'],
    ['SELECT nothing_here', '47', 'UNKNOWN_IDENTIFIER'],
    ['SELECT nothing_here()', '46', 'UNKNOWN_FUNCTION'],
    ['SELECT (', '62', 'SYNTAX_ERROR'],
    ['SELECT 1; SELECT 2', '62', 'SYNTAX_ERROR'],
    ["SELECT toUInt8('x')", '6', 'CANNOT_PARSE_TEXT'],
    ['SELECT throwIf(number = 3) FROM numbers(5)', '395', 'FUNCTION_THROW_IF_VALUE_IS_NON_ZERO'],
  ])('%s', async (query, code, type) => {
    const call = server.writer().query({ query, format: 'JSONEachRow' });
    await expect(call.then((result) => result.text())).rejects.toMatchObject({ code, type });
  });

  test('an error after the first block breaks the response for every reader', async () => {
    const query = "SELECT number, throwIf(number = 200000, 'late') FROM numbers(300000)";
    const ask = (settings: ClickHouseSettings = {}) =>
      server.writer().query({
        query,
        format: 'JSONEachRow',
        clickhouse_settings: { max_block_size: '10000', max_threads: 1, ...settings },
      });
    // The server may see the error before it has sent the first block: the call itself fails then.
    const readStream = async (): Promise<number> => {
      let count = 0;
      for await (const rows of (await ask()).stream()) count += rows.length;
      return count;
    };
    const readText = async (): Promise<string> => (await ask()).text();

    await expect(readStream()).rejects.toThrow(/late|aborted|error in the stream/);
    await expect(readText()).rejects.toThrow();
    await expect(ask({ wait_end_of_query: 1 })).rejects.toMatchObject({ code: '395' });
  });

  test("the service's client rejects a query that fails after the first block, however much was sent", async () => {
    const clickhouse = createClickHouse(server.service.url, { application: 'test' });
    const settings = { max_block_size: 10_000, max_threads: 1 };
    for (const last of [15_000, 250_000]) {
      const sql = `SELECT number AS n, throwIf(number = ${last}, 'late') AS x FROM numbers(300000)`;
      const query = { name: 'test.late', sql, row: z.unknown() };
      await expect(clickhouse.rows(query, {}, { settings })).rejects.toMatchObject({ code: '395' });
      // The server closes the connection after the error; the client may notice that first.
      const parts = clickhouse.eachPart(query, {}, () => {}, { settings });
      await expect(parts).rejects.toThrow(/late|did not answer/);
    }
    await clickhouse.close();
  });

  test('a file of JSON that fails after its beginning ends with an error, also by the default before ClickHouse 25.11', async () => {
    const url = `${server.service.url}?clickhouse_setting_http_write_exception_in_output_format=1`;
    const clickhouse = createClickHouse(url, { application: 'test' });
    const sql = "SELECT number, throwIf(number = 250000, 'late') AS x FROM numbers(300000)";
    const statement = { name: 'test.late', sql, format: 'JSONEachRow', rowBytes: 20, isSorted: false };
    const signal = AbortSignal.timeout(30_000);
    const settings = { max_block_size: 10_000, max_threads: 1 };
    const file = await clickhouse.file(statement, {}, { signal, settings });
    const end = text(file).then((whole) => whole.slice(-200));
    await expect(end).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
    await clickhouse.close();
  });

  test('a large result is handed on in parts, and its query ends when nobody takes them', async () => {
    const clickhouse = createClickHouse(server.service.url, { application: 'test' });
    const sql = 'SELECT number AS n FROM numbers({count:UInt64})';
    const query = { name: 'test.parts', sql, row: z.object({ n: z.coerce.number() }) };
    const parts: number[][] = [];
    await clickhouse.eachPart(query, { count: 300_000 }, (rows) => parts.push(rows.map(({ n }) => n)));
    expect(parts.flat()).toEqual(Array.from({ length: 300_000 }, (_, n) => n));
    expect(Math.max(...parts.map(({ length }) => length))).toBeLessThan(30_000);

    const enough = new RangeError('enough');
    const endless = clickhouse.eachPart(query, { count: 1e15 }, () => {
      throw enough;
    });
    await expect(endless).rejects.toBe(enough);
    const running = { name: 'test.running', row: z.object({ n: z.coerce.number() }) };
    const count = "SELECT count() AS n FROM system.processes WHERE Settings['log_comment'] = 'test.parts'";
    await vi.waitFor(
      async () => expect(await clickhouse.rows({ ...running, sql: count })).toEqual([{ n: 0 }]),
      30_000,
    );
    await clickhouse.close();
  });

  test('limits the time and memory of a query', async () => {
    const client = server.writer();
    const slow = client.query({
      query: 'SELECT count() FROM numbers(100000000000) WHERE sipHash64(number) = 1',
      clickhouse_settings: { max_execution_time: 1 },
    });
    expect(await codeOf(slow)).toBe('159');
    const greedy = client.query({
      query: 'SELECT groupArray(toString(number)) FROM numbers(50000000)',
      clickhouse_settings: { max_memory_usage: '100000000' },
    });
    expect(await codeOf(greedy)).toBe('241');
    expect(await rowsOf(client, 'SELECT 1 AS x')).toEqual([{ x: 1 }]);
  });

  test('rejects an unknown setting, user, password and database', async () => {
    const client = server.writer();
    const odd = { no_such_setting: '1' };
    expect(await codeOf(client.query({ query: 'SELECT 1', clickhouse_settings: odd }))).toBe('115');
    const { url } = server.service;
    const strangers = [
      // The program's own session is the only one of `default`.
      ['default', '', '700'],
      ['tds', '', '516'],
      ['tds', randomBytes(24).toString('hex'), '516'],
      ['api', new URL(url).password, '516'],
      ['nobody', '', '516'],
    ] as const;
    for (const [username, password, refusal] of strangers) {
      const stranger = server.writer({ url: new URL(url).origin, username, password });
      expect(await codeOf(stranger.query({ query: 'SELECT 1' })), username).toBe(refusal);
    }
    const elsewhere = new URL(url);
    elsewhere.pathname = '/nowhere';
    expect(await codeOf(rowsOf(server.writer({ url: elsewhere }), 'SELECT 1'))).toBe('81');
  });
});

describe('lifecycle of a query', () => {
  test('cancels the query of a reader that disconnects', async () => {
    const client = server.reader({ max_open_connections: 20 });
    const endless = (signal: AbortSignal) =>
      client.query({
        query: 'SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) = 1',
        abort_signal: signal,
        clickhouse_settings: { max_threads: 1 },
      });
    const abort = new AbortController();
    const calls = Array.from({ length: 10 }, () => endless(abort.signal).catch(() => 'aborted'));
    await new Promise((resolve) => setTimeout(resolve, 500));
    abort.abort();
    expect(await Promise.all(calls)).toEqual(Array.from({ length: 10 }, () => 'aborted'));
    const running = "SELECT count() AS n FROM system.processes WHERE query LIKE '%1000000000000%'";
    await expect
      .poll(() => rowsOf(server.writer(), `${running} AND query NOT LIKE '%processes%'`))
      .toEqual([{ n: '0' }]);
  });

  test('a session keeps temporary tables and settings, and runs one query at a time', async () => {
    const client = server.writer({ session_id: 'one' });
    await client.command({ query: 'CREATE TEMPORARY TABLE kept (x UInt8)' });
    await client.command({ query: 'SET max_block_size = 1234' });
    await client.insert({ table: 'kept', values: [{ x: 5 }], format: 'JSONEachRow' });
    const query = "SELECT x, toString(getSetting('max_block_size')) AS s FROM kept";
    expect(await rowsOf(client, query)).toEqual([{ x: 5, s: '1234' }]);
    expect(await codeOf(rowsOf(server.writer({ session_id: 'two' }), query))).toBe('60');

    const slow = rowsOf(client, 'SELECT sleep(0.5) AS s');
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(await codeOf(rowsOf(client, 'SELECT 1'))).toBe('373');
    await slow;
    expect(await rowsOf(client, 'SELECT 1 AS x')).toEqual([{ x: 1 }]);
  });

  test('settings of a request do not affect the next', async () => {
    const client = server.writer();
    const setting = "SELECT getSetting('max_block_size') AS s";
    const [usual] = await rowsOf(client, setting);
    await client.query({ query: setting, clickhouse_settings: { max_block_size: '77' } });
    await client.command({ query: 'SET max_block_size = 78' });
    expect(await rowsOf(client, setting)).toEqual([usual]);
  });

  test('a GET only reads', async () => {
    const { origin, username, password } = new URL(server.service.url);
    const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
    const get = (query: string) =>
      fetch(`${origin}/?query=${encodeURIComponent(query)}`, { headers: { authorization } });
    expect(await (await get('SELECT 1')).text()).toBe('1\n');
    const refused = await get('CREATE TABLE by_get (x UInt8) ENGINE = Memory');
    expect(refused.headers.get('x-clickhouse-exception-code')).toBe('164');
    expect(await codeOf(rowsOf(server.writer(), 'SELECT * FROM by_get'))).toBe('60');
  });
});

test.each([
  'GET // HTTP/1.1',
  'GET /?query=SELECT%201&query_id=%0a HTTP/1.1',
  'POST /?query=SELECT%201&default_format=a%0ab HTTP/1.1\r\nContent-Length: 0',
  'POST /?param_%F0=1 HTTP/1.1\r\nContent-Length: 0',
  'POST / HTTP/1.1\r\nContent-Encoding: constructor\r\nContent-Length: 0',
  'POST / HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 3\r\n\r\nodd',
  'POST / HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nodd',
])('a malformed request does not affect others: %j', async (head) => {
  const { hostname, port, username, password } = new URL(server.service.url);
  const authorization = Buffer.from(`${username}:${password}`).toString('base64');
  const answered = await new Promise<string>((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port) });
    let text = '';
    socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
    socket.on('error', reject).on('close', () => resolve(text));
    const [first, ...rest] = head.split('\r\n');
    const fields = ['Host: x', 'Connection: close', `Authorization: Basic ${authorization}`];
    const ending = rest.includes('') ? '' : '\r\n\r\n';
    socket.write([first, ...fields, ...rest].join('\r\n') + ending);
  });
  expect(answered).toMatch(/^HTTP\/1\.1 [245]\d\d /);
  expect(await rowsOf(server.writer(), 'SELECT 1 AS x')).toEqual([{ x: 1 }]);
});
