import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';
import { sqlRows } from './client.ts';
import type { Pool } from './client.ts';

/**
 * Runs `work` while no other process has a lock of these names; the locks go when it ends, and with this process. `busy`
 * says in a sentence what somebody else is doing (`CONFLICT`).
 */
export async function asTheOnlyOne<T>(
  pool: Pool,
  names: readonly string[],
  busy: (name: string) => string,
  work: () => Promise<T>,
): Promise<T> {
  const client = await pool.connect();
  client.on('error', () => {}); // the locks are gone then; what the work writes is fenced by other means
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
    return await work();
  } finally {
    // Not back into the pool: its end is what unlocks, whatever went wrong.
    client.release(true);
  }
}
