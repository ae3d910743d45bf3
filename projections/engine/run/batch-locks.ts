import { createStoreRetry } from '../store-retry.ts';
import type { StoreRetryDependencies } from '../store-retry.ts';
import type { ServedLock } from '../served-lock.ts';
import type { ProjectionState } from '../state.ts';
import type { Batch } from './batch.ts';

/** The locks that a swap of served builds waits for. Each occupies a connection, so consecutive batches share one. */
export interface BatchLocks {
  /** The lock of one batch: the one in use, or a new one after `renew`. Released once all its batches have released it. */
  take(batch: Pick<Batch, 'shares'>): Promise<ServedLock>;
  /** Makes the next batch take a new lock, so that a swap that is waiting comes first. */
  renew(): void;
}

interface SharedLock {
  readonly held: Promise<ServedLock>;
  users: number;
}

/** For shadow builds, which no swap waits for. */
const NO_LOCK: ServedLock = { isLost: () => false, release: async () => {} };

export interface BatchLockDependencies extends StoreRetryDependencies {
  /** Null for shadow builds. */
  readonly hold: ProjectionState['hold'] | null;
}

/** One lock after the other: a later batch must not hold a lock that a swap, for which an earlier one waits, waits for. */
export function createBatchLocks({ hold, ...dependencies }: BatchLockDependencies): BatchLocks {
  const onPostgres = createStoreRetry('postgres', dependencies);
  let holding: Promise<unknown> = Promise.resolve();
  let current: SharedLock | null = null;

  const open = ({ shares }: Pick<Batch, 'shares'>): SharedLock => {
    const builds = shares.map(({ target }) => target.build);
    const held = holding.then(() => (hold === null ? NO_LOCK : onPostgres(() => hold(builds))));
    holding = held.catch(() => {});
    return { held, users: 0 };
  };

  return {
    async take(batch) {
      const shared = (current ??= open(batch));
      shared.users += 1;
      const held = await shared.held;
      return {
        isLost: () => held.isLost(),
        async release() {
          shared.users -= 1;
          if (shared.users > 0) return;
          if (current === shared) current = null;
          await held.release();
        },
      };
    },
    renew() {
      current = null;
    },
  };
}
