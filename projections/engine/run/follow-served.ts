import type { Logger } from '../../../infra/log.ts';
import { AppError } from '../../../schemas/errors.ts';

export interface ProjectionRun {
  /** Rejects when the run cannot continue: a checkpoint outside the log, a bug, a failed consumer. */
  readonly done: Promise<void>;
  /** Stops reading, waits for batches in flight (unless their store is unavailable), and resolves `done`. */
  stop(): Promise<void>;
}

/**
 * Restarts a run after a swap: when one of its builds is no longer served (`BUILD_RETIRED`), the run is stopped and `start`
 * opens the builds that are served now.
 */
export async function followServed(start: () => Promise<ProjectionRun>, log: Logger): Promise<ProjectionRun> {
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});
  let isStopping = false;
  let current = Promise.resolve(await start());

  const follow = async (): Promise<void> => {
    while (!isStopping) {
      const run = await current;
      try {
        return await run.done;
      } catch (error) {
        if (!(error instanceof AppError) || error.code !== 'BUILD_RETIRED') throw error;
        if (isStopping) return;
        log.info({ reason: error.message }, 'build retired, restarting with the served build');
        current = run.stop().then(start);
      }
    }
  };
  follow().then(ending.resolve, ending.reject);

  return {
    done: ending.promise,
    async stop() {
      isStopping = true;
      // A failed restart has nothing to stop.
      await current.then(
        (run) => run.stop(),
        () => {},
      );
      await ending.promise.catch(() => {});
    },
  };
}
