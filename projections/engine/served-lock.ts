import type { Pool, PoolClient, Sql } from '../../infra/postgres/client.ts';
import { inTransaction } from '../../infra/postgres/client.ts';
import { AppError } from '../../schemas/errors.ts';
import { lockBuilds } from './builds.ts';
import type { Build } from './builds.ts';

/*
 * What is served does not change in the middle of a batch. A writer of served builds holds their projections, shared with
 * other writers, from before it writes the first row of a batch until its checkpoints have moved; a swap holds its own
 * alone. So nothing of a served table is in flight while it is compared and swapped. Readers hold nothing and wait for
 * nobody. Locks are taken in the order of names, so that no two wait for each other.
 */
async function acquireServedLocks(
  tx: Pick<PoolClient, 'query'>,
  how: 'shared' | 'alone',
  projections: readonly string[],
): Promise<void> {
  const lock = how === 'shared' ? 'pg_advisory_xact_lock_shared' : 'pg_advisory_xact_lock';
  await tx.query(
    `SELECT ${lock}(hashtext('tds.served'), hashtext(projection)) FROM unnest($1::text[]) AS p (projection)`,
    [[...new Set(projections)].toSorted()],
  );
}

/** A process that stands still for so long (frozen, cut off) loses what it holds, and nobody waits for it. */
const IDLE_MS = 10_000;
const PING_MS = 3000;
/** New batches wait behind a swap that waits for one under way: it gives up rather than keep them. */
const LONGEST_WAIT_MS = 30_000;

/** Ends a hold; nothing happens when it is called again. */
export interface ServedLock {
  /** True when the server has taken it away: what is served may have changed since. */
  isLost(): boolean;
  release(): Promise<void>;
}

/** A writer's hold, for one batch. Throws `BUILD_RETIRED` when one of these is served no more. */
export async function lockServed(pool: Pool, builds: readonly Build[]): Promise<ServedLock> {
  const client = await pool.connect();
  let isHeld = true;
  let stopPings = (): void => {};
  const letGo = async (how: 'COMMIT' | 'ROLLBACK'): Promise<void> => {
    if (!isHeld) return;
    isHeld = false;
    stopPings();
    const isBroken = await client.query(how).then(
      () => false,
      () => true,
    );
    client.release(isBroken);
  };
  try {
    await client.query(`BEGIN; SET LOCAL idle_in_transaction_session_timeout = ${IDLE_MS}`);
    await lockServedForTransaction(client, builds);
    stopPings = pinging(client);
  } catch (error) {
    await letGo('ROLLBACK');
    throw error;
  }
  return { isLost: () => client.isLost(), release: () => letGo('COMMIT') };
}

/** The same for the length of a transaction that writes rows and checkpoint together. */
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

/** Throws `BUILD_RETIRED` when one of these is served no more. */
export async function checkServed(db: Pick<Sql, 'query'>, builds: readonly Build[]): Promise<void> {
  const { rows } = await db.query<{ projection: string; build: number }>(
    `SELECT projection, build FROM unnest($1::text[], $2::int[]) AS b (projection, build)
     WHERE NOT EXISTS (SELECT FROM tds.builds s
       WHERE s.projection = b.projection AND s.build = b.build AND s.state = 'serving')`,
    [builds.map(({ projection }) => projection), builds.map(({ build }) => build)],
  );
  const [retired] = rows;
  if (retired !== undefined) {
    throw new AppError('BUILD_RETIRED', `Build ${retired.build} of ${retired.projection} is served no more`);
  }
}

/**
 * Runs `work` while no writer of these projections is in the middle of a batch and none can begin one, and nobody makes or
 * drops a build. Throws `CONFLICT` when a batch takes too long to end.
 */
export async function withSwapLock<T>(
  pool: Pool,
  projections: readonly string[],
  work: (tx: PoolClient) => Promise<T>,
): Promise<T> {
  return await inTransaction(
    pool,
    async (tx) => {
      await tx.query(`SET LOCAL lock_timeout = ${LONGEST_WAIT_MS}`);
      try {
        await lockBuilds(tx);
        await acquireServedLocks(tx, 'alone', projections);
      } catch (error) {
        if (!isLockTimeout(error)) throw error;
        throw new AppError(
          'CONFLICT',
          `A batch that is being written did not end within ${LONGEST_WAIT_MS / 1000} s, so nothing is swapped; the next run goes on from here`,
          { cause: error },
        );
      }
      const stopPings = pinging(tx);
      try {
        return await work(tx);
      } finally {
        stopPings();
      }
    },
    { idleMs: IDLE_MS },
  );
}

/** SQLSTATE 55P03. */
function isLockTimeout(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === '55P03';
}

/** Shows the server now and then that this process lives. */
function pinging(client: PoolClient): () => void {
  const timer = setInterval(() => void client.query('SELECT 1').catch(() => {}), PING_MS);
  return () => clearInterval(timer);
}
