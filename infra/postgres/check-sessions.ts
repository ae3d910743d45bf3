import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';
import { createPool, isPostgresUnavailable, sqlRows } from './client.ts';
import type { Pool, Sql } from './client.ts';

/**
 * Checks that a connection keeps its session. A pooler in transaction mode (pgbouncer's `pool_mode = transaction`) runs each
 * transaction in any session: advisory locks and notifications, which the service needs, would be lost without an error. An
 * unavailable server is not checked.
 *
 * @throws `CONFIG_INVALID`
 */
export async function checkSessions(url: string): Promise<void> {
  const pool = createPool(url, { applicationName: 'tds-check', max: 2 });
  try {
    if (await keepsSessions(pool)) return;
  } catch (error) {
    if (isPostgresUnavailable(error)) return;
    throw error;
  } finally {
    await pool.end();
  }
  throw new AppError(
    'CONFIG_INVALID',
    'The database URL leads to a pooler in transaction mode, which loses locks and notifications: connect to PostgreSQL itself, or set pool_mode = session',
  );
}

async function keepsSessions(pool: Pool): Promise<boolean> {
  const first = await pool.connect();
  try {
    const session = await sessionOf(first);
    const second = await pool.connect();
    try {
      // A pooler gives the session that is free again to the next transaction, of whatever connection.
      await second.query('BEGIN');
      return (await sessionOf(first)) === session;
    } finally {
      second.release(true);
    }
  } finally {
    first.release(true);
  }
}

const sessionRow = z.object({ pid: z.number() });

async function sessionOf(client: Sql): Promise<number | undefined> {
  const [row] = await sqlRows(client, sessionRow, 'SELECT pg_backend_pid() AS pid');
  return row?.pid;
}
