import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';
import { sqlRows } from './client.ts';
import type { Pool, Sql } from './client.ts';

/** PostgreSQL ends the session of a holder that has sent nothing for so long: a process that hangs gives its locks up. */
const SILENT_MS = 20_000;

/** Whether `withAdvisoryLocks` holds one of these in some process. */
export async function isAnyAdvisoryLockHeld(db: Sql, names: readonly string[]): Promise<boolean> {
  const { rowCount } = await db.query(
    `SELECT 1 FROM pg_locks JOIN unnest($1::text[]) AS name
       ON (classid::bigint << 32 | objid::bigint) = hashtextextended(name, 0)
     WHERE locktype = 'advisory' AND objsubid = 1 AND granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 1`,
    [names],
  );
  return rowCount === 1;
}

/**
 * Runs `work` while holding advisory locks of these names. They end with `work`, with the connection and with this process,
 * and when the process was stopped for longer than `silentMs`.
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
  { silentMs = SILENT_MS }: { readonly silentMs?: number } = {},
): Promise<T> {
  const client = await pool.connect();
  let answer: Promise<unknown> | null = null;
  /** Queries of one connection must not overlap. */
  const ask = async (): Promise<void> => {
    answer ??= client.query('SELECT 1').finally(() => {
      answer = null;
    });
    await answer;
  };
  const assertHeld = async (): Promise<void> => {
    try {
      await ask();
    } catch (cause) {
      const text = 'The connection that held the lock was lost: another process may have taken it';
      throw new AppError('CONFLICT', text, { cause });
    }
  };
  let alive: NodeJS.Timeout | undefined;
  try {
    await client.query(`SET idle_session_timeout = ${silentMs}`);
    for (const name of names) {
      const [row] = await sqlRows(
        client,
        z.object({ locked: z.boolean() }),
        'SELECT pg_try_advisory_lock(hashtextextended($1, 0)) AS locked',
        [name],
      );
      if (row?.locked !== true) throw new AppError('CONFLICT', busy(name));
    }
    // A failure shows in `assertHeld`.
    alive = setInterval(() => void ask().catch(() => {}), silentMs / 4);
    return await work(assertHeld);
  } finally {
    clearInterval(alive);
    await ask().catch(() => {});
    // PostgreSQL notices the end of a connection with a delay, during which the lock would still be taken.
    await client.query('SELECT pg_advisory_unlock_all()').catch(() => {});
    // Closed, not pooled: its end releases the locks whatever failed.
    client.release(true);
  }
}

/** Runs `work` while holding the lock, or not at all while it is taken. CONFLICT, as after a lost lock, only ends `work`. */
export async function withFreeAdvisoryLock(
  pool: Pool,
  name: string,
  work: (assertHeld: () => Promise<void>) => Promise<unknown>,
): Promise<void> {
  try {
    await withAdvisoryLocks(pool, [name], () => 'taken', work);
  } catch (error) {
    if (!(error instanceof AppError && error.code === 'CONFLICT')) throw error;
  }
}
