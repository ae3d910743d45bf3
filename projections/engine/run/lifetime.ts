export interface ProjectionRun {
  /** Rejects when the run cannot continue: a checkpoint outside the log, a bug, a failed consumer. */
  readonly done: Promise<void>;
  /** Stops reading, waits for batches in flight (unless their store is unavailable), and resolves `done`. */
  stop(): Promise<void>;
}

interface Lifetime extends ProjectionRun {
  /** Fires when the run is stopped or has failed. */
  readonly signal: AbortSignal;
  /** Rejects `done`, unless the run is stopped or has failed before. */
  readonly fail: (error: unknown) => void;
}

/** @param close ends what the run has started; called at `stop` */
export function createLifetime(close: () => Promise<void>): Lifetime {
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});
  const abort = new AbortController();
  const { signal } = abort;
  return {
    done: ending.promise,
    signal,
    fail(error) {
      if (signal.aborted) return;
      ending.reject(error);
      abort.abort(error);
    },
    async stop() {
      abort.abort(new Error('stopped'));
      await close();
      ending.resolve();
    },
  };
}
