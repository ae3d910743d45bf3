import { connect } from 'node:net';
import { Readable } from 'node:stream';

import type { ClickHouseClient } from '@clickhouse/client';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';

import { codeOf, rowsOf, startTestServer } from './clickhouse-server.ts';
import type { TestServer } from './clickhouse-server.ts';

/** Inserts by the unmodified client into the embedded server: no row is lost, truncated or executed as SQL. */
let server: TestServer;
let client: ClickHouseClient;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server.stop());
beforeEach(async () => {
  client = server.writer();
  for (const sql of [
    'DROP TABLE IF EXISTS t',
    'DROP TABLE IF EXISTS bystander',
    'CREATE TABLE t (id UInt64, text String, amount UInt256) ENGINE = MergeTree ORDER BY id',
    'CREATE TABLE bystander (x UInt8) ENGINE = MergeTree ORDER BY x',
  ]) {
    await client.command({ query: sql });
  }
});

const largest = ((1n << 256n) - 1n).toString();
const trap = '\n\nDROP TABLE bystander;\n\n';
const all = 'SELECT id, text, amount FROM t ORDER BY id';

test('inserts JSON rows that contain empty lines and SQL', async () => {
  await client.insert({
    table: 't',
    values: [
      { id: '18446744073709551615', text: trap, amount: largest },
      { id: 1, text: "it's \\ \t 😀", amount: '0' },
    ],
    format: 'JSONEachRow',
  });
  expect(await rowsOf(client, all)).toEqual([
    { id: '1', text: "it's \\ \t 😀", amount: '0' },
    { id: '18446744073709551615', text: trap, amount: largest },
  ]);
});

test('an empty line between rows neither ends the insert nor executes the following lines', async () => {
  const line = (id: number): string => `{"id":${id},"text":"","amount":"0"}\n`;
  const values = Readable.from([`${line(1)}\n`, `${line(2)}\n\n`, line(3)], { objectMode: false });
  const { stream } = await client.exec({ query: 'INSERT INTO t FORMAT JSONEachRow', values });
  for await (const chunk of stream) void chunk;
  expect(await rowsOf(client, 'SELECT id FROM t ORDER BY id')).toEqual([
    { id: '1' },
    { id: '2' },
    { id: '3' },
  ]);

  const sql = Readable.from([`${line(4)}\n\nDROP TABLE bystander;`], { objectMode: false });
  expect(await codeOf(client.exec({ query: 'INSERT INTO t FORMAT JSONEachRow', values: sql }))).toMatch(
    /^\d+$/,
  );
  expect(await rowsOf(client, 'SELECT count() AS n FROM bystander')).toEqual([{ n: '0' }]);
  expect(await rowsOf(client, 'SELECT count() AS n FROM t')).toEqual([{ n: '3' }]);
});

test('inserts RowBinary with an empty line, quotes, zeros and a semicolon', async () => {
  const text = Buffer.from(`a\n\n;'"\`\\\0DROP TABLE bystander\n\n`);
  const row = (id: number): Buffer => {
    const head = Buffer.alloc(9);
    head.writeBigUInt64LE(BigInt(id));
    head.writeUInt8(text.length, 8);
    return Buffer.concat([head, text, Buffer.alloc(32, 0xff)]);
  };
  // An id of 0x0a0a is an empty line, too.
  const ids = [1, 0x0a0a, 0x0a0a0a0a0a, ...Array.from({ length: 50_000 }, (_, i) => 1_000_000 + i)];
  const values = Readable.from(ids.map(row), { objectMode: false });
  const { stream, summary } = await client.exec({
    query: 'INSERT INTO t (id, text, amount) FORMAT RowBinary',
    values,
  });
  for await (const chunk of stream) void chunk;
  expect(summary?.written_rows).toBe(String(ids.length));
  expect(
    await rowsOf(client, 'SELECT count() AS n, uniqExact(id) AS ids, min(amount) AS least FROM t'),
  ).toEqual([{ n: String(ids.length), ids: String(ids.length), least: largest }]);
  expect(
    await rowsOf(client, 'SELECT DISTINCT text = {text:String} AS same FROM t', { text: text.toString() }),
  ).toEqual([{ same: 1 }]);
  expect(await rowsOf(client, 'SELECT count() AS n FROM bystander')).toEqual([{ n: '0' }]);
});

test('inserts VALUES with quotes, comments, expressions and a parameter', async () => {
  await client.command({
    query: `INSERT INTO t /* FORMAT CSV */ (id, text, amount) VALUES (1, 'it''s; FORMAT', 2 + 3), (2, {p:String},\n\n 7)`,
    query_params: { p: 'given' },
  });
  expect(await rowsOf(client, all)).toEqual([
    { id: '1', text: "it's; FORMAT", amount: '5' },
    { id: '2', text: 'given', amount: '7' },
  ]);
});

test('inserts into a table named by a parameter, or like a keyword', async () => {
  await client.command({
    query: 'CREATE TABLE IF NOT EXISTS `values` (x UInt8) ENGINE = MergeTree ORDER BY x',
  });
  await client.insert({ table: '`values`', values: [{ x: 1 }], format: 'JSONEachRow' });
  await client.command({
    query: 'INSERT INTO {table:Identifier} (x) VALUES (2)',
    query_params: { table: 'values' },
  });
  await client.command({ query: 'INSERT INTO `values` SELECT 3' });
  expect(await rowsOf(client, 'SELECT x FROM `values` ORDER BY x')).toEqual([{ x: 1 }, { x: 2 }, { x: 3 }]);
});

test.each(['gzip', 'zstd'] as const)('inserts a streamed body compressed with %s', async (codec) => {
  const values = Readable.from(
    (function* rows() {
      for (let id = 0; id < 20_000; id++) yield { id, text: trap, amount: '1' };
    })(),
  );
  await server
    .writer({ compression: { request: { codec } } })
    .insert({ table: 't', values, format: 'JSONEachRow' });
  expect(await rowsOf(client, 'SELECT count() AS n, sum(id) AS ids FROM t')).toEqual([
    { n: '20000', ids: '199990000' },
  ]);
});

test('an invalid row fails the whole insert', async () => {
  const values = [
    { id: 1, text: 'a', amount: '1' },
    { id: 2, text: 'b', amount: 'not a number' },
  ];
  const call = client.insert({ table: 't', values, format: 'JSONEachRow' });
  await expect(call).rejects.toMatchObject({ type: expect.stringMatching(/^CANNOT_PARSE|INCORRECT_DATA/) });
  expect(await rowsOf(client, 'SELECT count() AS n FROM t')).toEqual([{ n: '0' }]);
});

test('an interrupted upload inserts no rows', async () => {
  const { hostname, port, username, password } = new URL(server.service.url);
  const authorization = Buffer.from(`${username}:${password}`).toString('base64');
  const rows = Array.from({ length: 50_000 }, (_, id) => `{"id":${id},"text":"x","amount":"1"}\n`).join('');
  for (const framing of [`Content-Length: ${rows.length * 2}`, 'Transfer-Encoding: chunked']) {
    await new Promise<void>((resolve, reject) => {
      const socket = connect({ host: hostname, port: Number(port) });
      socket.on('error', reject);
      socket.write(
        `POST /?query=${encodeURIComponent('INSERT INTO t FORMAT JSONEachRow')}&database=tds HTTP/1.1\r\n` +
          `Host: x\r\nAuthorization: Basic ${authorization}\r\n${framing}\r\n\r\n`,
      );
      const body = framing.startsWith('Transfer') ? `${rows.length.toString(16)}\r\n${rows}\r\n` : rows;
      socket.write(body, () => setTimeout(() => resolve(void socket.destroy()), 100));
    });
  }
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(await rowsOf(client, 'SELECT count() AS n FROM t')).toEqual([{ n: '0' }]);
});

test('acknowledged rows exist exactly once after kill -9', async () => {
  const acknowledged = new Set<number>();
  let next = 0;
  for (let round = 0; round < 2; round++) {
    let killed = false;
    const writing = async (): Promise<void> => {
      const writer = server.writer();
      while (!killed) {
        const batch = next++;
        const values = Array.from({ length: 500 }, (_, i) => ({
          id: batch * 1000 + i,
          text: 'x',
          amount: '1',
        }));
        try {
          await writer.insert({ table: 't', values, format: 'JSONEachRow' });
          acknowledged.add(batch);
        } catch {
          return;
        }
      }
    };
    const writers = [writing(), writing(), writing()];
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const restarted = server.killAndRestart();
    killed = true;
    await Promise.all([...writers, restarted]);
  }
  const found = await rowsOf(
    server.writer(),
    'SELECT intDiv(id, 1000) AS batch, count() AS n FROM t GROUP BY batch ORDER BY batch',
  );
  const counts = new Map(
    found.map((row) => Object.values(row as Record<string, string>).map(Number)) as [number, number][],
  );
  expect(acknowledged.size).toBeGreaterThan(10);
  for (const batch of acknowledged) expect(counts.get(batch), `batch ${batch}`).toBe(500);
  // The insert in progress may exist, too, but only completely.
  for (const [batch, count] of counts) expect(count, `batch ${batch}`).toBe(500);
});
