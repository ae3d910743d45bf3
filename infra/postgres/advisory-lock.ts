import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';
import { sqlRows } from './client.ts';
import type { Pool } from './client.ts';

/**
 * Runs `work` while holding advisory locks of these names. They end with `work`, with the connection and with this process.
 *
 * @param busy describes what the holder of a lock does; becomes the message of CONFLICT when a lock is taken
 * @param work calls `assertHeld` before a step that only the holder may take; it throws CONFLICT once the connection, and
 *   the locks with it, is lost
 */
export async function withAdvisoryLocks<T>(
  pool: Pool,
  names: readonly string[],
  busy: (name: string) => string,
  work: (assertHeld: () => Promise<void>) => Promise<T>,
): Promise<T> {
  const client = await pool.connect();
  try {
    for (const name of names) {
      const [row] = await sqlRows(
        client,
        z.object({ locked: z.boolean() }),
        'SELECT pg_try_advisory_lock(hashtextextended($1, 0)) AS locked',
        [name],
      );
      if (row?.locked !== true) throw new AppError('CONFLICT', busy(name));
    }
    return await work(async () => {
      try {
        await client.query('SELECT 1');
      } catch (error) {
        throw new AppError(
          'CONFLICT',
          'The connection that held the lock was lost: another process may have taken it',
          {
            cause: error,
          },
        );
      }
    });
  } finally {
    // PostgreSQL notices the end of a connection with a delay, during which the lock would still be taken.
    await client.query('SELECT pg_advisory_unlock_all()').catch(() => {});
    // Closed, not pooled: its end releases the locks whatever failed.
    client.release(true);
  }
}
