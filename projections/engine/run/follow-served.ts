import { isClickHouseUnavailable } from '../../../infra/clickhouse/client.ts';
import { isStoreUnavailable } from '../../../infra/retry-while-unavailable.ts';
import { AppError } from '../../../schemas/errors.ts';
import { createStoreRetry } from '../store-retry.ts';
import type { StoreRetryDeps } from '../store-retry.ts';
import { createLifetime } from './lifetime.ts';
import type { ProjectionRun } from './lifetime.ts';

/**
 * Restarts a run after a swap: when one of its builds is no longer served (`BUILD_RETIRED`), the run is stopped and `start`
 * opens the builds that are served now. A restart waits for unavailable stores; the first start throws.
 *
 * @param start gives up when its signal fires, at `stop`
 */
export async function followServed(
  start: (signal: AbortSignal) => Promise<ProjectionRun>,
  deps: Omit<StoreRetryDeps, 'signal'>,
): Promise<ProjectionRun> {
  const lifetime = createLifetime(async () => {
    // A failed restart has nothing to stop.
    await current.then(
      (run) => run.stop(),
      () => {},
    );
    await following;
  });
  const { signal, fail } = lifetime;
  let current = Promise.resolve(await start(signal));
  const retryWhileUnavailable = createStoreRetry(
    'any store',
    { ...deps, signal },
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
        deps.log.info({ reason: error.message }, 'build retired, restarting with the served build');
        current = run.stop().then(() => retryWhileUnavailable(() => start(signal)));
      }
    }
  };
  const following = follow().catch(fail); // a restart that `stop` interrupts is no failure
  return lifetime;
}
