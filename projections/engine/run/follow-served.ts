import type { Logger } from '../../../infra/log.ts';
import { AppError } from '../../../schemas/errors.ts';

export interface ProjectionRun {
  /** Rejects when the run cannot go on: a checkpoint outside the log, a bug, a consumer that gave up. */
  readonly done: Promise<void>;
  /** Stops reading, lets what is in flight end (unless its store is away), and resolves `done`. */
  stop(): Promise<void>;
}

/**
 * Keeps a run going over swaps: when another build took the place of one that it writes (`BUILD_RETIRED`), it is
 * stopped and `start` opens the builds that are served now.
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
        log.info({ reason: error.message }, 'going on with the build that is served now');
        current = run.stop().then(start);
      }
    }
  };
  follow().then(ending.resolve, ending.reject);

  return {
    done: ending.promise,
    async stop() {
      isStopping = true;
      // One that could not be started again has nothing to stop.
      await current.then(
        (run) => run.stop(),
        () => {},
      );
      await ending.promise.catch(() => {});
    },
  };
}
