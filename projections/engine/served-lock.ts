import type { Pool, PoolClient, Sql } from '../../infra/postgres/client.ts';
import { inTransaction, isLockTimeout, prepared } from '../../infra/postgres/client.ts';
import { AppError } from '../../schemas/errors.ts';
import { lockBuilds } from './builds.ts';
import type { Build } from './builds.ts';

/*
 * Keeps a swap of builds out of the middle of a batch. A writer of served builds takes a shared advisory lock on their
 * projections before its first row and releases it after its checkpoints have moved; a swap takes an exclusive one, so
 * that no insert is in flight while it compares and swaps. Readers take no lock. Locks are taken in the order of names,
 * which prevents deadlocks.
 */
async function acquireServedLocks(
  tx: Pick<PoolClient, 'query'>,
  mode: 'shared' | 'exclusive',
  projections: readonly string[],
): Promise<void> {
  const lock = mode === 'shared' ? 'pg_advisory_xact_lock_shared' : 'pg_advisory_xact_lock';
  await tx.query(
    prepared(
      `SELECT ${lock}(hashtext('tds.served'), hashtext(projection)) FROM unnest($1::text[]) AS p (projection)`,
      [[...new Set(projections)].toSorted()],
    ),
  );
}

/** A process that is frozen or cut off for this long loses its locks. */
const IDLE_MS = 10_000;
const PING_MS = 3000;
/** What waits for a batch to end blocks new batches, so it gives up after this long. */
const LOCK_TIMEOUT_MS = 30_000;
/** Writers wait no longer than this for work that stops them: a store may be unavailable. */
const MAX_HOLD_MS = 60_000;

export interface ServedLock {
  /** True once the server has ended the lock's transaction: the served builds may have changed since. */
  isLost(): boolean;
  /** Idempotent. */
  release(): Promise<void>;
}

/**
 * Takes a writer's lock for one batch.
 *
 * @throws BUILD_RETIRED when one of the builds is no longer served
 */
export async function lockServed(pool: Pool, builds: readonly Build[]): Promise<ServedLock> {
  const client = await pool.connect();
  let isHeld = true;
  let stopPings = (): void => {};
  const end = async (statement: 'COMMIT' | 'ROLLBACK'): Promise<void> => {
    if (!isHeld) return;
    isHeld = false;
    stopPings();
    const isBroken = await client.query(statement).then(
      () => false,
      () => true,
    );
    client.release(isBroken);
  };
  try {
    await client.query(`BEGIN; SET LOCAL idle_in_transaction_session_timeout = ${IDLE_MS}`);
    await lockServedForTransaction(client, builds);
    stopPings = startPings(client);
  } catch (error) {
    await end('ROLLBACK');
    throw error;
  }
  return { isLost: () => client.isLost(), release: () => end('COMMIT') };
}

/** Takes a writer's lock until the end of a transaction that writes rows and the checkpoint together. */
export async function lockServedForTransaction(
  tx: Pick<PoolClient, 'query'>,
  builds: readonly Build[],
): Promise<void> {
  await acquireServedLocks(
    tx,
    'shared',
    builds.map(({ projection }) => projection),
  );
  await checkServed(tx, builds);
}

/** @throws BUILD_RETIRED when one of the builds is no longer served */
export async function checkServed(db: Pick<Sql, 'query'>, builds: readonly Build[]): Promise<void> {
  const { rows } = await db.query<{ projection: string; build: number }>(
    prepared(
      `SELECT projection, build FROM unnest($1::text[], $2::int[]) AS b (projection, build)
       WHERE NOT EXISTS (SELECT FROM tds.builds s
         WHERE s.projection = b.projection AND s.build = b.build AND s.state = 'serving')`,
      [builds.map(({ projection }) => projection), builds.map(({ build }) => build)],
    ),
  );
  const [retired] = rows;
  if (retired !== undefined) {
    throw new AppError(
      'BUILD_RETIRED',
      `Build ${retired.build} of ${retired.projection} is no longer served`,
    );
  }
}

/**
 * Runs `work` while no writer of these projections writes a batch and no process creates or drops a build.
 *
 * @param texts `task` names the work, `remedy` says what was not done and what to do
 * @param work gets the transaction, and a signal; once that is aborted, writers continue and every statement in the transaction fails
 * @throws CONFLICT when a batch or a change of builds takes too long to end, or the work takes longer than `holdMs`
 */
export async function withWritersStopped<T>(
  pool: Pool,
  projections: readonly string[],
  { task, remedy }: { readonly task: string; readonly remedy: string },
  work: (tx: Sql, signal: AbortSignal) => Promise<T>,
  holdMs = MAX_HOLD_MS,
): Promise<T> {
  return await inTransaction(
    pool,
    async (tx) => {
      await tx.query(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
      try {
        await lockBuilds(tx);
        await acquireServedLocks(tx, 'exclusive', projections);
      } catch (error) {
        if (!isLockTimeout(error)) throw error;
        throw new AppError(
          'CONFLICT',
          `A batch, or a change of builds in another process, did not end within ${LOCK_TIMEOUT_MS / 1000} s: ${remedy}`,
          { cause: error },
        );
      }
      const stopPings = startPings(tx);
      const late = new AbortController();
      const tooLong = (cause?: unknown): AppError =>
        new AppError('CONFLICT', `${task} took over ${holdMs / 1000} s: ${remedy}`, { cause });
      const timer = setTimeout(() => {
        late.abort(tooLong());
        // Releases the locks, also while `work` waits for a store.
        void tx.query('ROLLBACK').catch(() => {});
      }, holdMs);
      try {
        const result = await work(untilAborted(tx, late.signal), late.signal);
        late.signal.throwIfAborted();
        return result;
      } catch (error) {
        throw late.signal.aborted && error !== late.signal.reason ? tooLong(error) : error;
      } finally {
        clearTimeout(timer);
        stopPings();
      }
    },
    { idleMs: IDLE_MS },
  );
}

/** Statements after the end of the transaction would each be committed. */
function untilAborted(tx: Sql, signal: AbortSignal): Sql {
  return {
    async query(statement, values) {
      signal.throwIfAborted();
      return await tx.query(statement, values);
    },
  };
}

/** Keeps the transaction from being ended as idle. Returns the function that stops it. */
function startPings(client: PoolClient): () => void {
  const timer = setInterval(() => void client.query('SELECT 1').catch(() => {}), PING_MS);
  return () => clearInterval(timer);
}
