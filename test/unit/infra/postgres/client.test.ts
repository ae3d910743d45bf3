import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

import { afterEach, expect, test } from 'vitest';

import { createPool, inTransaction, isPostgresUnavailable } from '../../../../infra/postgres/client.ts';
import { AppError } from '../../../../schemas/errors.ts';
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
): Promise<{ pool: Pool; connections: () => number; reset: () => void; hangUp: () => void }> {
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
  const hangUp = (): void => sockets.forEach((socket) => socket.end());
  return { pool, connections: () => sockets.size, reset, hangUp };
}

const failureOf = async (work: Promise<unknown>): Promise<unknown> =>
  await work.then(
    () => null,
    (error: unknown) => error,
  );

test('a server that accepts connections and does not answer is unavailable', async () => {
  const { pool } = await poolOn(false, {});
  expect(isPostgresUnavailable(await failureOf(pool.query('SELECT 1')))).toBe(true);
});

test('a pool whose connections all wait for statements that hang is unavailable', async () => {
  const { pool } = await poolOn(true, { max: 1 });
  void failureOf(pool.query('SELECT 1'));
  expect(isPostgresUnavailable(await failureOf(pool.query('SELECT 2')))).toBe(true);
});

test('a statement that hangs times out and closes its connection', async () => {
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
  ['25P04', 'terminating connection due to transaction timeout', true],
  ['25006', 'cannot execute INSERT in a read-only transaction', true],
  ['40001', 'could not serialize access', true],
  ['57014', 'canceling statement due to statement timeout', true],
  ['58030', 'could not write to file', true],
])('SQLSTATE %s: %s', (code, message, expected) => {
  expect(isPostgresUnavailable(Object.assign(new Error(message), { code }))).toBe(expected);
});

test('a connection lost within a transaction fails the transaction, not the process', async () => {
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

test('a server that hangs up while a connection starts is unavailable', async () => {
  const { pool, connections, hangUp } = await poolOn(false, {});
  const failed = failureOf(pool.query('SELECT 1'));
  await expect.poll(connections).toBe(1);
  hangUp();
  const error = await failed;
  expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE', retryable: true });
  expect(isPostgresUnavailable(error)).toBe(true);
});

test('a server that hangs up during a statement is unavailable', async () => {
  const { pool, connections, hangUp } = await poolOn(true, {});
  const failed = failureOf(pool.query('SELECT 1'));
  await expect.poll(connections).toBe(1);
  await new Promise((resolve) => setTimeout(resolve, 50));
  hangUp();
  const error = await failed;
  expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE', retryable: true });
  expect(isPostgresUnavailable(error)).toBe(true);
});

test('a client whose connection was lost between two statements is unavailable', async () => {
  const { pool, hangUp } = await poolOn(true, {});
  const client = await pool.connect();
  expect(client.isLost()).toBe(false);
  hangUp();
  await expect.poll(() => client.isLost()).toBe(true);
  expect(isPostgresUnavailable(await failureOf(client.query('SELECT 1')))).toBe(true);
  client.release();
});

test('a pool that was ended is not retryable', async () => {
  const { pool } = await poolOn(true, {});
  await pool.end();
  expect(isPostgresUnavailable(await failureOf(pool.query('SELECT 1')))).toBe(false);
});

test.each([
  new RangeError('connection'),
  new SyntaxError('connection'),
  new ReferenceError('connection is not defined'),
  new TypeError('connection'),
  new Error('Connection terminated unexpectedly'),
  new Error('Query read timeout'),
  Object.assign(new Error('connection'), { code: 'ERR_INVALID_ARG_TYPE' }),
  Object.assign(new Error('password authentication failed'), { code: '28P01' }),
  Object.assign(new Error('database does not exist'), { code: '3D000' }),
  new AppError('CONFIG_INVALID', 'connection'),
  new AppError('STORE_UNAVAILABLE', 'ClickHouse', { details: { store: 'ClickHouse' } }),
  'ECONNREFUSED',
  null,
])('an unknown error is not retryable: %s', (error) => {
  expect(isPostgresUnavailable(error)).toBe(false);
});

test.each(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN'])(
  'a network error is retryable: %s',
  (code) => {
    expect(isPostgresUnavailable(Object.assign(new Error('x'), { code }))).toBe(true);
  },
);
