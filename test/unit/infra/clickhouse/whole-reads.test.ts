import { createServer } from 'node:http';
import type { ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { text } from 'node:stream/consumers';

import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';

import { createClickHouse } from '../../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../../infra/clickhouse/client.ts';

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close();
});

/** A writer on a cluster, and what its server received: the sockets, numbered, and the statements on each. */
async function writerOn(
  onSync: (response: ServerResponse) => void,
): Promise<{ clickhouse: ClickHouse; received: string[]; sockets: Socket[] }> {
  const sockets: Socket[] = [];
  const received: string[] = [];
  const server = createServer((message, response) => {
    void text(message).then((sql) => {
      received.push(`${sockets.indexOf(message.socket)} ${sql.split('\n')[0]}`);
      if (sql.startsWith('SYSTEM SYNC REPLICA')) onSync(response);
      else response.end('{"n":1}\n');
    });
  });
  server.on('connection', (socket) => sockets.push(socket));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => new Promise((resolve) => server.close(resolve)));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/tds`;
  const cluster = { name: 'c', insertQuorum: 2 };
  const clickhouse = createClickHouse(url, { application: 'test', timeoutMs: 5000, cluster });
  closers.push(() => clickhouse.close().catch(() => {}));
  return { clickhouse, received, sockets };
}

const exception = (code: number) => (response: ServerResponse) =>
  response
    .writeHead(500, { 'x-clickhouse-exception-code': String(code) })
    .end(`Code: ${code}. DB::Exception: No. (NAME)`);
const query = (sql: string) => ({ name: 'test', sql, row: z.object({ n: z.number() }) });

test('a replica fetches what it lacks of each table, then answers on the same connection, which is closed', async () => {
  const { clickhouse, received, sockets } = await writerOn((response) => response.end());
  const sql = 'SELECT n FROM a FINAL JOIN (SELECT n FROM b) USING n ARRAY JOIN c';
  expect(await clickhouse.rows(query(sql))).toEqual([{ n: 1 }]);
  await clickhouse.command('INSERT INTO d SELECT n FROM e');
  expect(received).toEqual([
    '0 SYSTEM SYNC REPLICA a IF EXISTS LIGHTWEIGHT',
    '0 SYSTEM SYNC REPLICA b IF EXISTS LIGHTWEIGHT',
    `0 ${sql}`,
    '1 SYSTEM SYNC REPLICA e IF EXISTS LIGHTWEIGHT',
    '1 INSERT INTO d SELECT n FROM e',
  ]);
  await expect.poll(() => sockets.map(({ destroyed }) => destroyed)).toEqual([true, true]);
});

test('what reads no table is sent as it is', async () => {
  const { clickhouse, received } = await writerOn((response) => response.end());
  await clickhouse.rows(query('SELECT 1 AS n FROM system.one'));
  await clickhouse.rows(query('SELECT number AS n FROM numbers(1)'));
  await clickhouse.command('INSERT INTO a VALUES (1)');
  expect(received).toHaveLength(3);
});

test('a table that is not replicated is read', async () => {
  const { clickhouse } = await writerOn(exception(36));
  expect(await clickhouse.rows(query('SELECT n FROM a'))).toEqual([{ n: 1 }]);
});

test('a replica that does not fetch in time is left for a new connection', async () => {
  let lagging = 2;
  const { clickhouse, received, sockets } = await writerOn((response) => {
    lagging -= 1;
    if (lagging >= 0) exception(159)(response);
    else response.end();
  });
  expect(await clickhouse.rows(query('SELECT n FROM a'))).toEqual([{ n: 1 }]);
  expect(received.map((line) => line.slice(0, 8))).toEqual(['0 SYSTEM', '1 SYSTEM', '2 SYSTEM', '2 SELECT']);
  await expect.poll(() => sockets.map(({ destroyed }) => destroyed)).toEqual([true, true, true]);
});

test('an answer on another connection than the one that was prepared is not used', async () => {
  const { clickhouse, sockets } = await writerOn((response) => {
    response.setHeader('connection', 'close').end();
  });
  await expect(clickhouse.rows(query('SELECT n FROM a'))).rejects.toMatchObject({
    code: 'STORE_UNAVAILABLE',
  });
  await expect.poll(() => sockets.map(({ destroyed }) => destroyed)).toEqual([true, true]);
});

test('nothing is sent once the client is closed', async () => {
  const { clickhouse, received } = await writerOn(exception(159));
  const failed = clickhouse.rows(query('SELECT n FROM a')).catch((error: unknown) => error);
  await expect.poll(() => received.length).toBeGreaterThan(0);
  await clickhouse.close();
  const sent = received.length;
  expect(await failed).toMatchObject({ code: 'STORE_UNAVAILABLE' });
  expect(received.length).toBe(sent);
});
