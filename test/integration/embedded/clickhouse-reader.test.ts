import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { createServer, request } from 'node:http';

import type { ClickHouseClient } from '@clickhouse/client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import { listenTcp } from '../../../infra/listen-tcp.ts';
import { codeOf, rowsOf, startTestServer } from './clickhouse-server.ts';
import type { TestServer } from './clickhouse-server.ts';

/** Permissions of the read-only user, tested with the engine. */
let server: TestServer;
let reader: ClickHouseClient;
beforeAll(async () => {
  server = await startTestServer();
  reader = server.reader();
  const writer = server.writer();
  await writer.command({
    query: 'CREATE TABLE t (a UInt64, file String) ENGINE = ReplacingMergeTree ORDER BY a',
  });
  await writer.command({ query: "INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')" });
});
afterAll(async () => {
  await server.stop();
  expect(existsSync('/tmp/tds-reader-was-here')).toBe(false);
});

describe('the read-only user may', () => {
  test.each([
    ['SELECT a FROM t WHERE a = {a:UInt64}', [{ a: '2' }]],
    ['WITH s AS (SELECT sum(a) AS n FROM t) SELECT n FROM s', [{ n: '6' }]],
    ['(SELECT 1 AS x) UNION ALL (SELECT 1 AS x)', [{ x: 1 }, { x: 1 }]],
    ['SELECT a FROM t FINAL ORDER BY a DESC LIMIT 1 SETTINGS max_threads = 1, final = 0', [{ a: '3' }]],
    ['SELECT t.file AS f FROM tds.t AS t WHERE `a` = 1;', [{ f: 'one' }]],
    [
      `SELECT 'INSERT INTO t; DROP TABLE t; file(''/x'') -- ' AS x /* ; SYSTEM */`,
      [{ x: expect.any(String) }],
    ],
    ["SELECT 'x' AS file, 1 AS url, 2 AS system", [{ file: 'x', url: 1, system: 2 }]],
  ])('%s', async (query, rows) => {
    expect(await rowsOf(reader, query, { a: 2 })).toEqual(rows);
  });

  test('set output formats in the URL, and ping', async () => {
    const result = await reader.query({
      query: 'SELECT count() AS n FROM t',
      format: 'JSONEachRow',
      clickhouse_settings: {
        output_format_json_quote_64bit_integers: 1,
        wait_end_of_query: 1,
        log_comment: 'x',
      },
    });
    expect(await result.json()).toEqual([{ n: '3' }]);
    expect(await reader.ping()).toEqual({ success: true });
    expect(await reader.ping({ select: true })).toEqual({ success: true });
  });
});

/** Codes: 62 SYNTAX_ERROR, 164 READONLY, 358 INTO_OUTFILE_NOT_ALLOWED, 452 SETTING_CONSTRAINT_VIOLATION, 497 ACCESS_DENIED. */
const refusals: readonly (readonly [code: string, query: string])[] = [
  // Writing.
  ['497', 'INSERT INTO t VALUES (4, 4)'],
  ['497', 'INSERT INTO t SELECT 4, 4'],
  ['497', 'WITH s AS (SELECT 1) INSERT INTO t SELECT 4, 4'],
  ['497', 'CREATE TABLE u (a UInt8) ENGINE = Memory'],
  ['497', 'DROP TABLE t'],
  ['497', 'TRUNCATE TABLE t'],
  ['497', 'ALTER TABLE t DELETE WHERE 1'],
  ['497', 'DELETE FROM t WHERE 1'],
  ['497', 'OPTIMIZE TABLE t FINAL'],
  ['497', 'SYSTEM STOP MERGES t'],
  ['497', "BACKUP TABLE t TO File('/tmp/tds-reader-was-here')"],
  ['497', 'GRANT ALL ON *.* TO api'],
  ['497', 'CREATE USER another'],
  ['62', 'SELECT 1; DROP TABLE t'],
  // Files, networks, other processes.
  ['497', "SELECT * FROM file('/etc/hostname', 'LineAsString')"],
  ['497', 'SELECT * FROM default.`/etc/hostname`'],
  ['358', "SELECT 1 INTO OUTFILE '/tmp/tds-reader-was-here'"],
  ['497', "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a String')"],
  ['497', "SELECT a IN (SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a UInt64')) FROM t"],
  ['497', "SELECT * FROM remote('127.0.0.1:1', system.one)"],
  ['497', "SELECT * FROM mysql('127.0.0.1:1', 'd', 't', 'u', 'p')"],
  ['497', "SELECT * FROM postgresql('127.0.0.1:1', 'd', 't', 'u', 'p')"],
  ['497', "SELECT * FROM executable('id', 'TabSeparated', 'a String')"],
  ['497', 'SELECT * FROM system.processes'],
  ['497', 'SELECT * FROM system.users'],
  // Limits.
  ['164', 'SELECT 1 SETTINGS readonly = 0'],
  ['452', 'SELECT 1 SETTINGS max_memory_usage = 0'],
];

describe('the read-only user may not', () => {
  test.each(refusals)('%s: %s', async (code, query) => {
    expect(await codeOf(reader.command({ query }))).toBe(code);
  });

  test('insert through the body', async () => {
    const insert = reader.insert({ table: 't', values: [{ a: 9, file: 'x' }], format: 'JSONEachRow' });
    expect(await codeOf(insert)).toBe('497');
  });

  test('name a database or a file by a parameter', async () => {
    const query = 'SELECT * FROM {db:Identifier}.{t:Identifier}';
    expect(await codeOf(rowsOf(reader, query, { db: 'default', t: '/etc/hostname' }))).toBe('497');
    expect(await codeOf(rowsOf(reader, query, { db: 'system', t: 'processes' }))).toBe('497');
  });

  test('change its limits in the URL', async () => {
    for (const [setting, refusal] of [
      ['readonly', '164'],
      ['max_memory_usage', '452'],
    ] as const) {
      const call = reader.query({ query: 'SELECT 1', clickhouse_settings: { [setting]: '0' } });
      expect(await codeOf(call), setting).toBe(refusal);
    }
  });
});

/** Forwards requests, all of them in one session of ClickHouse. */
async function openSession(target: string): Promise<{ url: string; close(): void }> {
  const sessionId = randomUUID();
  const proxy = createServer((received, response) => {
    const url = new URL(received.url ?? '/', target);
    url.searchParams.set('session_id', sessionId);
    const { method, headers } = received;
    const forwarded = request(url, { method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(response);
    });
    received.pipe(forwarded);
  });
  const { port } = await listenTcp(proxy, { host: '127.0.0.1', port: 0, name: 'proxy', settings: 'none' });
  const url = new URL(target);
  url.port = String(port);
  const close = (): void => {
    proxy.close();
    proxy.closeAllConnections();
  };
  return { url: url.href, close };
}

describe("the API's client of a user under readonly = 1", () => {
  const query = {
    name: 'test.big',
    sql: 'SELECT toUInt64(18446744073709551615) AS big',
    row: z.object({ big: z.string() }),
  };
  /** Reads in a session with these settings, after which no setting can be changed. */
  const read = async (settings: readonly string[], isReader: boolean): Promise<unknown> => {
    const session = await openSession(server.service.url);
    const clickhouse = createClickHouse(session.url, { application: 'test', isReader });
    try {
      for (const setting of [...settings, 'readonly = 1']) await clickhouse.command(`SET ${setting}`);
      return await clickhouse.rows(query, {}, { settings: { max_threads: 1 } });
    } finally {
      await clickhouse.close();
      session.close();
    }
  };

  test('reads exact numbers', async () => {
    const quoted = ['output_format_json_quote_64bit_integers = 1'];
    expect(await read(quoted, true)).toEqual([{ big: '18446744073709551615' }]);
    expect(await codeOf(read(quoted, false))).toBe('164');
  });

  test.each([
    ['max_memory_usage', 50_000_000],
    ['max_execution_time', 7],
    ['max_bytes_to_read', 1_000_000],
  ])('keeps %s of the profile where it is lower, and lowers a higher one', async (name, limit) => {
    const limits = {
      name: 'test.limit',
      sql: `SELECT toString(getSetting('${name}')) AS n`,
      row: z.unknown(),
    };
    // As in the user's profile: set for the session, before the read.
    const session = await openSession(server.service.apiUrl);
    const clickhouse = createClickHouse(session.url, { application: 'test', isReader: true });
    const limitOf = async (asked: number): Promise<unknown> =>
      await clickhouse.rows(limits, {}, { settings: { [name]: asked } });
    try {
      await clickhouse.command(`SET ${name} = ${limit}`);
      expect(await limitOf(limit - 1)).toEqual([{ n: String(limit - 1) }]);
      expect(await limitOf(10 * limit)).toEqual([{ n: String(limit) }]);
    } finally {
      await clickhouse.close();
      session.close();
    }
  });

  test('is refused where 64-bit numbers are not quoted', async () => {
    await expect(read([], true)).rejects.toThrow(/set output_format_json_quote_64bit_integers = 1/);
  });
});

test('none of these statements has changed the table', async () => {
  expect(await rowsOf(server.writer(), 'SELECT count() AS n FROM t')).toEqual([{ n: '3' }]);
});
