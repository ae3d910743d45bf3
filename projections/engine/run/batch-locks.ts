import { createStoreRetry } from '../store-retry.ts';
import type { StoreRetryDeps } from '../store-retry.ts';
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
  readonly lock: Promise<ServedLock>;
  users: number;
}

/** For shadow builds, which no swap waits for. */
const NO_LOCK: ServedLock = { isLost: () => false, release: async () => {} };

export interface BatchLockDeps extends StoreRetryDeps {
  /** Null for shadow builds. */
  readonly lockServed: ProjectionState['lockServed'] | null;
}

/** Requests one lock after the other: a batch that overtook an earlier one, queued behind a swap, would deadlock with the swap. */
export function createBatchLocks({ lockServed, ...deps }: BatchLockDeps): BatchLocks {
  const onPostgres = createStoreRetry('postgres', deps);
  let last: Promise<unknown> = Promise.resolve();
  let current: SharedLock | null = null;

  const open = ({ shares }: Pick<Batch, 'shares'>): SharedLock => {
    const builds = shares.map(({ target }) => target.build);
    const lock = last.then(() => (lockServed === null ? NO_LOCK : onPostgres(() => lockServed(builds))));
    last = lock.catch(() => {});
    return { lock, users: 0 };
  };

  return {
    async take(batch) {
      const shared = (current ??= open(batch));
      shared.users += 1;
      const lock = await shared.lock;
      return {
        isLost: () => lock.isLost(),
        async release() {
          shared.users -= 1;
          if (shared.users > 0) return;
          if (current === shared) current = null;
          await lock.release();
        },
      };
    },
    renew() {
      current = null;
    },
  };
}
