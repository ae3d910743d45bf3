import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';
import { sqlRows } from './client.ts';
import type { Pool } from './client.ts';

/**
 * Runs `work` while no other process has a lock of these names; the locks go when it ends, and with this process. `busy`
 * says in a sentence what somebody else is doing (`CONFLICT`). `work` asks `assertHeld` before what only the holder may do:
 * it throws `CONFLICT` once the locks are lost with their connection, and somebody else may have them.
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
          'The connection with the lock was lost: another process may have begun',
          {
            cause: error,
          },
        );
      }
    });
  } finally {
    // The end of a connection is noticed a moment later: who asks next would still find it locked.
    await client.query('SELECT pg_advisory_unlock_all()').catch(() => {});
    // Not back into the pool: its end is what unlocks, whatever went wrong.
    client.release(true);
  }
}
