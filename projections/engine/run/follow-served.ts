import { isClickHouseUnavailable } from '../../../infra/clickhouse/client.ts';
import { isStoreUnavailable } from '../../../infra/retry-while-unavailable.ts';
import { AppError } from '../../../schemas/errors.ts';
import { createStoreRetry } from '../store-retry.ts';
import type { StoreRetryDependencies } from '../store-retry.ts';

export interface ProjectionRun {
  /** Rejects when the run cannot continue: a checkpoint outside the log, a bug, a failed consumer. */
  readonly done: Promise<void>;
  /** Stops reading, waits for batches in flight (unless their store is unavailable), and resolves `done`. */
  stop(): Promise<void>;
}

/**
 * Restarts a run after a swap: when one of its builds is no longer served (`BUILD_RETIRED`), the run is stopped and `start`
 * opens the builds that are served now. A restart waits for unavailable stores; the first start throws.
 *
 * @param start gives up when its signal fires, at `stop`
 */
export async function followServed(
  start: (signal: AbortSignal) => Promise<ProjectionRun>,
  dependencies: Omit<StoreRetryDependencies, 'signal'>,
): Promise<ProjectionRun> {
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});
  const stopping = new AbortController();
  const { signal } = stopping;
  let current = Promise.resolve(await start(signal));
  const retryWhileUnavailable = createStoreRetry(
    'any store',
    { ...dependencies, signal },
    (error) => isStoreUnavailable(error) || isClickHouseUnavailable(error),
  );

  const follow = async (): Promise<void> => {
    while (!signal.aborted) {
      const run = await current;
      try {
        return await run.done;
      } catch (error) {
        if (!(error instanceof AppError) || error.code !== 'BUILD_RETIRED') throw error;
        if (signal.aborted) return;
        dependencies.log.info({ reason: error.message }, 'build retired, restarting with the served build');
        current = run.stop().then(() => retryWhileUnavailable(() => start(signal)));
      }
    }
  };
  // A restart that `stop` interrupts is no failure.
  follow().then(ending.resolve, (error: unknown) =>
    signal.aborted ? ending.resolve() : ending.reject(error),
  );

  return {
    done: ending.promise,
    async stop() {
      stopping.abort(new Error('stopped'));
      // A failed restart has nothing to stop.
      await current.then(
        (run) => run.stop(),
        () => {},
      );
      await ending.promise.catch(() => {});
    },
  };
}
