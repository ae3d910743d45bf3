import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

import { afterEach, expect, test } from 'vitest';

import { createPool, inTransaction, isPostgresUnavailable } from '../../../../infra/postgres/client.ts';
import type { Pool } from '../../../../infra/postgres/client.ts';

/** AuthenticationOk, ReadyForQuery: from then on the server is silent. */
const greeting = Buffer.from('5200000008000000005a0000000549', 'hex');

const closers: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close();
});

async function poolOn(
  greet: boolean,
  options: { max?: number; queryTimeoutMs?: number },
): Promise<{ pool: Pool; connections: () => number; reset: () => void }> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => {}));
    if (greet) socket.once('data', () => socket.write(greeting));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const pool = createPool(`postgres://u:p@127.0.0.1:${port}/d`, {
    applicationName: 'test',
    connectTimeoutMs: 100,
    ...options,
  });
  closers.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const reset = (): void => sockets.forEach((socket) => socket.resetAndDestroy());
  return { pool, connections: () => sockets.size, reset };
}

const failureOf = async (work: Promise<unknown>): Promise<unknown> =>
  await work.then(
    () => null,
    (error: unknown) => error,
  );

test('a server that takes connections and says nothing is away', async () => {
  const { pool } = await poolOn(false, {});
  expect(isPostgresUnavailable(await failureOf(pool.query('SELECT 1')))).toBe(true);
});

test('so is one whose connections are all taken by statements that hang', async () => {
  const { pool } = await poolOn(true, { max: 1 });
  void failureOf(pool.query('SELECT 1'));
  expect(isPostgresUnavailable(await failureOf(pool.query('SELECT 2')))).toBe(true);
});

test('a statement that hangs ends in time, and costs its connection', async () => {
  const { pool, connections } = await poolOn(true, { max: 1, queryTimeoutMs: 150 });
  for (const sql of ['SELECT 1', 'SELECT 2']) {
    expect(isPostgresUnavailable(await failureOf(pool.query(sql)))).toBe(true);
  }
  expect(connections()).toBe(2);
});

test.each([
  ['42P01', 'relation "x" does not exist', false],
  ['23505', 'duplicate key', false],
  ['57P01', 'terminating connection due to administrator command', true],
  ['53300', 'too many connections', true],
  ['25P03', 'terminating connection due to idle-in-transaction timeout', true],
  ['40001', 'could not serialize access', true],
  ['57014', 'canceling statement due to statement timeout', true],
  ['58030', 'could not write to file', true],
])('SQLSTATE %s: %s', (code, message, expected) => {
  expect(isPostgresUnavailable(Object.assign(new Error(message), { code }))).toBe(expected);
});

test('a connection that is lost within a transaction fails it, and not the process', async () => {
  const { pool, connections, reset } = await poolOn(true, {});
  closers.push(() => pool.end());
  const uncaught: unknown[] = [];
  const listener = (error: unknown): void => void uncaught.push(error);
  process.prependListener('uncaughtException', listener);
  closers.push(() => void process.off('uncaughtException', listener));
  const failed = failureOf(inTransaction(pool, async () => {}));
  await expect.poll(connections).toBe(1);
  await new Promise((resolve) => setTimeout(resolve, 50));
  reset();
  expect(isPostgresUnavailable(await failed)).toBe(true);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(uncaught).toEqual([]);
});
