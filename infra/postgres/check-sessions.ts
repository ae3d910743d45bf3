import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';
import { createPool, sqlRows } from './client.ts';
import type { Pool, Sql } from './client.ts';

const QUERY_TIMEOUT_MS = 5000;

/**
 * Checks that a connection keeps its session. A pooler in transaction mode (pgbouncer's `pool_mode = transaction`) runs each
 * transaction in any session: advisory locks and notifications, which the service needs, would be lost without an error. One in
 * statement mode refuses transactions.
 *
 * @throws `CONFIG_INVALID`, or a retryable error when PostgreSQL does not answer
 */
export async function checkSessions(url: string): Promise<void> {
  const pool = createPool(url, { applicationName: 'tds-check', max: 2, queryTimeoutMs: QUERY_TIMEOUT_MS });
  try {
    if (await keepsSessions(pool)) return;
  } finally {
    await pool.end();
  }
  throw new AppError(
    'CONFIG_INVALID',
    'The database URL leads to a pooler in transaction or statement mode, which loses locks and notifications: connect to PostgreSQL itself, or set pool_mode = session',
  );
}

async function keepsSessions(pool: Pool): Promise<boolean> {
  const first = await pool.connect();
  try {
    const session = await sessionOf(first);
    const second = await pool.connect();
    try {
      // A pooler in transaction mode gives a free session to the next transaction, whichever connection it comes from.
      const hasBegun = await begins(second);
      return (await sessionOf(first)) === session && hasBegun;
    } finally {
      second.release(true);
    }
  } finally {
    first.release(true);
  }
}

/** False where pgbouncer refuses the transaction because of its mode; its SQLSTATE, 08P01, is that of any refusal. */
async function begins(client: Sql): Promise<boolean> {
  try {
    await client.query('BEGIN');
    return true;
  } catch (error) {
    if (String(error).includes('statement pooling')) return false;
    throw error;
  }
}

const sessionRow = z.object({ pid: z.number() });

async function sessionOf(client: Sql): Promise<number | undefined> {
  const [row] = await sqlRows(client, sessionRow, 'SELECT pg_backend_pid() AS pid');
  return row?.pid;
}
