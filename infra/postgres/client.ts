import pg from 'pg';
import type { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';

export type Pool = pg.Pool;
export type PoolClient = pg.PoolClient;
/** Anything that takes a statement: a pool, or a client inside a transaction. */
export type Sql = Pick<pg.ClientBase, 'query'> | Pool;

/** int8 arrives as a number (offsets, heights, milliseconds: all far below 2^53); a larger one is refused, not rounded. */
const types = {
  getTypeParser(oid: number, format?: 'text' | 'binary'): unknown {
    if (oid !== pg.types.builtins.INT8) return pg.types.getTypeParser(oid, format);
    return (text: string) => {
      const value = Number(text);
      if (!Number.isSafeInteger(value)) throw new RangeError(`int8 out of the safe range: ${text}`);
      return value;
    };
  },
} as pg.CustomTypesConfig;

export function createPool(
  connectionString: string,
  options: {
    applicationName: string;
    max?: number;
    /** For a free connection, and for a new one. */
    connectTimeoutMs?: number;
    /** A statement that takes longer fails and costs its connection: the server hangs, or the way to it is cut. */
    queryTimeoutMs?: number;
    onError?: (error: Error) => void;
  },
): Pool {
  const pool = new pg.Pool({
    connectionString,
    types,
    max: options.max ?? 10,
    application_name: options.applicationName,
    connectionTimeoutMillis: options.connectTimeoutMs ?? 5000,
    ...(options.queryTimeoutMs === undefined ? {} : { query_timeout: options.queryTimeoutMs }),
    keepAlive: true,
  });
  // A client that loses its server must not end the process. The next query says what is wrong with an idle one, the
  // statement under way with one that is lent out: the pool listens to that one no more.
  pool.on('error', (error) => options.onError?.(error));
  pool.on('connect', (client) => client.on('error', () => {}));
  return pool;
}

/**
 * Runs `work` in one transaction; any error rolls it back.
 *
 * @param options.idleMs a transaction that asks nothing for so long is rolled back by the server, and lets go of its locks:
 * its process stands still, is frozen, or is cut off
 */
export async function inTransaction<T>(
  pool: Pool,
  work: (tx: PoolClient) => Promise<T>,
  { idleMs }: { idleMs?: number } = {},
): Promise<T> {
  const client = await pool.connect();
  let broken = false;
  try {
    const bounded = idleMs === undefined ? '' : `; SET LOCAL idle_in_transaction_session_timeout = ${idleMs}`;
    await client.query(`BEGIN${bounded}`);
    const result = await work(client);
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {
      broken = true;
    });
    throw error;
  } finally {
    client.release(broken);
  }
}

/** Rows of a query, parsed at the border. */
export async function sqlRows<T>(
  db: Sql,
  row: z.ZodType<T>,
  text: string,
  values: readonly unknown[] = [],
): Promise<T[]> {
  const result = await db.query(text, [...values]);
  return result.rows.map((raw: unknown) => row.parse(raw));
}

/**
 * True where trying again can help: the server is away, starting or stopping, short of something, failed at its disk, or
 * gave up on a conflict, on a statement, or on a transaction that stood still (SQLSTATE classes 08, 40, 53, 57, 58, and
 * 25P03).
 */
export function isPostgresUnavailable(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof AppError) return false;
  const code = 'code' in error && typeof error.code === 'string' ? error.code : '';
  if (/^(08|40|53|57|58|25P03)/.test(code)) return true;
  if (['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN'].includes(code))
    return true;
  // pg reports a connection that ended, and its own time-outs, as plain errors without a code.
  return (
    code === '' &&
    /connection|timeout exceeded when trying to connect|query read timeout/i.test(error.message)
  );
}

/**
 * True where a table or its schema is not there (SQLSTATE 42P01, 3F000): a rebuild has put another one in its place since
 * its name was looked up.
 */
export function isTableGone(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === '42P01' || error.code === '3F000');
}
