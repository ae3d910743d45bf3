import { existsSync } from 'node:fs';

import type { ClickHouseClient } from '@clickhouse/client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

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

const refusals: readonly (readonly [code: string, query: string])[] = [
  // Not a SELECT.
  ['164', 'INSERT INTO t VALUES (4, 4)'],
  ['164', 'INSERT INTO t SELECT 4, 4'],
  ['164', 'CREATE TABLE u (a UInt8) ENGINE = Memory'],
  ['164', 'DROP TABLE t'],
  ['164', 'TRUNCATE TABLE t'],
  ['164', 'ALTER TABLE t DELETE WHERE 1'],
  ['164', 'DELETE FROM t WHERE 1'],
  ['164', 'OPTIMIZE TABLE t FINAL'],
  ['164', 'SYSTEM SHUTDOWN'],
  ['164', 'SYSTEM STOP MERGES'],
  ['164', 'KILL QUERY WHERE 1'],
  ['164', 'SET readonly = 0'],
  ['164', 'USE default'],
  ['164', "BACKUP TABLE t TO File('/tmp/tds-reader-was-here')"],
  ['164', 'ATTACH TABLE t'],
  ['164', 'EXPLAIN SELECT 1'],
  ['164', 'SHOW TABLES'],
  // Two statements, also without a semicolon.
  ['62', 'SELECT 1; SELECT 2'],
  ['62', 'SELECT 1; DROP TABLE t'],
  ['62', "SELECT '\\'; DROP TABLE t; --'; DROP TABLE t"],
  ['62', 'SELECT 1 /* /* */ ; DROP TABLE t; -- */ ; DROP TABLE t'],
  ['62', "SELECT x'41\\'; DROP TABLE t; --'"],
  ['62', 'SELECT ‘a; DROP TABLE t’'],
  ['62', "SELECT 'open"],
  ['497', 'WITH s AS (SELECT 1) INSERT INTO t SELECT 4, 4'],
  ['497', 'SELECT 1 PARALLEL WITH DROP TABLE t'],
  // Files.
  ['497', "SELECT file('/etc/hostname')"],
  ['497', "SELECT FILE ('/etc/hostname')"],
  ['497', "SELECT `file`('/etc/hostname')"],
  ['497', `SELECT "file" /* x */ ('/etc/hostname')`],
  ['497', "SELECT * APPLY(file) FROM (SELECT '/etc/hostname')"],
  ['497', "SELECT * APPLY file FROM (SELECT '/etc/hostname')"],
  ['497', "SELECT * FROM file('/etc/hostname', 'LineAsString')"],
  ['497', 'SELECT * FROM default.`/etc/hostname`'],
  ['497', 'SELECT * FROM `default`.`/etc/hostname`'],
  ['497', 'SELECT * FROM default /**/ . "/etc/hostname"'],
  ['497', "SELECT 1 INTO OUTFILE '/tmp/tds-reader-was-here'"],
  ['497', "SELECT 1 INTO/**/OUTFILE '/tmp/tds-reader-was-here' FORMAT CSV"],
  // Networks, other processes, other tables.
  ['497', "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a String')"],
  ['497', "SELECT * FROM t, url('http://127.0.0.1:1/', 'CSV', 'a String')"],
  ['497', "SELECT * FROM s3('http://127.0.0.1:1/x', 'CSV', 'a String')"],
  ['497', "SELECT * FROM remote('127.0.0.1:1', system.one)"],
  ['497', "SELECT * FROM mysql('127.0.0.1:1', 'd', 't', 'u', 'p')"],
  ['497', "SELECT * FROM postgresql('127.0.0.1:1', 'd', 't', 'u', 'p')"],
  ['497', "SELECT * FROM executable('id', 'TabSeparated', 'a String')"],
  ['497', "SELECT * FROM merge('system', '.*')"],
  ['497', 'SELECT * FROM numbers(3)'],
  ['497', "SELECT a IN (SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a UInt64')) FROM t"],
  ['497', 'SELECT * FROM system.processes'],
  ['497', 'SELECT * FROM `system`.settings'],
  ['497', 'SELECT * FROM information_schema.tables'],
  ['497', 'SELECT sleep(3)'],
  // Settings other than output formats and limits.
  ['452', 'SELECT 1 SETTINGS readonly = 0'],
  ['452', 'SELECT 1 SETTINGS max_memory_usage = 0'],
  ['452', "SELECT 1 SETTINGS format_schema = '/etc/passwd'"],
  ['452', "SELECT 1 SETTINGS output_format_schema = '/tmp/tds-reader-was-here' FORMAT Protobuf"],
  ['452', 'SELECT * FROM (SELECT 1 SETTINGS readonly = 0)'],
  ['452', 'SELECT * FROM (SELECT 1 SETTINGS max_threads = 1, `max_memory_usage` = 0)'],
  ['452', "SELECT (SELECT 1 SETTINGS /* */ format_schema = '/etc/passwd')"],
];

describe('the read-only user may not', () => {
  test.each(refusals)('%s: %s', async (code, query) => {
    const call = reader.query({ query, format: 'TabSeparated' });
    expect(await codeOf(call.then((result) => result.text()))).toBe(code);
    expect(await codeOf(reader.command({ query }))).toBe(code);
  });

  test('insert through the body, or as a stream', async () => {
    const insert = reader.insert({ table: 't', values: [{ a: 9, file: 'x' }], format: 'JSONEachRow' });
    expect(await codeOf(insert)).toBe('164');
  });

  test.each(['default./etc/hostname', '/etc/hostname', 'default', 'system.processes'])(
    'name %s by a parameter',
    async (table) => {
      expect(await codeOf(rowsOf(reader, 'SELECT * FROM {table:Identifier}', { table }))).toBe('497');
    },
  );

  test('name a database by a parameter', async () => {
    const call = rowsOf(reader, 'SELECT * FROM {db:Identifier}.{t:Identifier}', {
      db: 'default',
      t: '/etc/hostname',
    });
    expect(await codeOf(call)).toBe('497');
  });

  test.each(['default', 'system', 'information_schema'])('work in database %s', async (database) => {
    const url = new URL(server.service.apiUrl);
    url.pathname = `/${database}`;
    // The client omits `default` from a request, which then uses the server's own database.
    const call = rowsOf(server.reader({ url }), 'SELECT * FROM `/etc/hostname`');
    expect(await codeOf(call)).toBe(database === 'default' ? '60' : '497');
    const direct = await fetch(`${url.origin}/?database=${database}&query=SELECT%201`, {
      headers: { authorization: `Basic ${Buffer.from(`api:${url.password}`).toString('base64')}` },
    });
    expect([direct.status, direct.headers.get('x-clickhouse-exception-code')]).toEqual([403, '497']);
  });

  test('change other settings in the URL', async () => {
    for (const setting of ['readonly', 'max_memory_usage', 'allow_ddl', 'format_schema']) {
      const call = reader.query({ query: 'SELECT 1', clickhouse_settings: { [setting]: '0' } });
      expect(await codeOf(call), setting).toBe('452');
    }
  });

  test('use a session', async () => {
    const call = server
      .reader({ session_id: 's' })
      .command({ query: 'CREATE TEMPORARY TABLE kept (x UInt8)' });
    expect(await codeOf(call)).toBe('164');
  });
});

test('none of these statements has changed the table', async () => {
  expect(await rowsOf(server.writer(), 'SELECT count() AS n FROM t')).toEqual([{ n: '3' }]);
});
