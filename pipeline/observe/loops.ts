import { Releasers, pause } from '../../infra/lifecycle.ts';
import type { Logger } from '../../infra/log.ts';
import { isPostgresUnavailable } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { withAdvisoryLocks } from '../../infra/postgres/advisory-lock.ts';
import { backoffMs } from '../../infra/retry.ts';
import { AppError, isRetryable } from '../../schemas/errors.ts';
import { retryAfterMs } from './http.ts';

/** Backoff after a failed observation: from a second to five minutes. */
export const OBSERVER_BACKOFF = { baseMs: 1000, maxMs: 300_000 };

export interface ObserverRun {
  /** Rejects with the error that ended the run. */
  readonly done: Promise<void>;
  stop(): Promise<void>;
}

export interface ObserverContext {
  /** Fires when the observer begins to stop. */
  readonly signal: AbortSignal;
  /** Released in reverse order by `stop`. */
  readonly releasers: Releasers;
  /** Rejects `done`. */
  readonly fail: (error: unknown) => void;
}

/** Gives an observer its lifecycle: whatever `start` pushes to `releasers` ends with `stop`, or with `outer`. */
export async function startObserver(
  outer: AbortSignal | undefined,
  start: (context: ObserverContext) => Promise<void> | void,
): Promise<ObserverRun> {
  const stopping = new AbortController();
  const { promise: done, resolve, reject } = Promise.withResolvers<void>();
  done.catch(() => {}); // a caller may never look at it
  const releasers = new Releasers((_, error) => reject(error));
  let stopped: Promise<void> | null = null;
  const stop = (): Promise<void> =>
    (stopped ??= (async () => {
      stopping.abort();
      await releasers.releaseAll();
      resolve();
    })());
  try {
    await start({ signal: stopping.signal, releasers, fail: reject });
  } catch (error) {
    await stop();
    throw error;
  }
  if (outer?.aborted === true) await stop();
  outer?.addEventListener('abort', () => void stop(), { once: true });
  return { done, stop };
}

export interface PollLoop {
  /** Skips the rest of the current delay. */
  wake(): void;
  /** Resolves after the last round. */
  readonly finished: Promise<void>;
}

export interface PollLoopOptions {
  /** In log lines. */
  readonly component: string;
  /** True: there may be more to do, so that the next round follows at once. */
  readonly round: () => Promise<boolean>;
  /** Delay after a round that found nothing to do, or that PostgreSQL failed. */
  readonly pollMs: number;
  readonly log: Logger;
  /** Ends the loop. */
  readonly signal: AbortSignal;
  readonly onFatal: (error: unknown) => void;
}

export function startPollLoop({ component, round, pollMs, log, signal, onFatal }: PollLoopOptions): PollLoop {
  let delay = new AbortController();
  const wake = (): void => delay.abort();
  signal.addEventListener('abort', wake);
  const run = async (): Promise<void> => {
    while (!signal.aborted) {
      delay = new AbortController();
      try {
        if (await round()) continue;
      } catch (error) {
        if (!isPostgresUnavailable(error)) throw error;
        log.warn({ err: error, component }, 'PostgreSQL unavailable, retrying');
      }
      if (!signal.aborted) await pause(pollMs, delay.signal);
    }
  };
  return { wake, finished: run().catch(onFatal) };
}

export interface PeriodicJobOptions {
  /** The advisory lock's name, and the component in log lines. */
  readonly name: string;
  readonly pool: Pool;
  readonly everyMs: number;
  readonly run: (signal: AbortSignal) => Promise<void>;
  /** True for an error, besides outages of stores, after which the job is tried again. */
  readonly isExpected?: (error: unknown) => boolean;
  readonly onSuccess?: () => Promise<void>;
  readonly onFailure?: (error: unknown) => Promise<void>;
  readonly log: Logger;
  readonly onFatal: (error: unknown) => void;
}

/** Runs a job periodically in one process of many, whichever holds the advisory lock at the time. */
export function startPeriodicJob(options: PeriodicJobOptions): { stop(): Promise<void> } {
  const { name, pool, everyMs, run, isExpected = () => false, onSuccess, onFailure, log, onFatal } = options;
  const stopping = new AbortController();
  const { signal } = stopping;

  const loop = (async () => {
    for (let failures = 0; !signal.aborted;) {
      let delayMs = everyMs;
      try {
        await withAdvisoryLocks(
          pool,
          [name],
          () => `Another process runs the ${name}`,
          () => run(signal),
        );
        await onSuccess?.();
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        const isLocked = error instanceof AppError && error.code === 'CONFLICT';
        if (!isLocked) {
          if (!isExpected(error) && !isRetryable(error) && !isPostgresUnavailable(error)) throw error;
          failures += 1;
          const backoff = backoffMs(failures, OBSERVER_BACKOFF, Math.random());
          delayMs = Math.max(retryAfterMs(error) ?? 0, Math.min(everyMs, backoff));
          log.warn({ err: error, component: name, delayMs }, 'periodic job failed, retrying');
          await onFailure?.(error);
        }
      }
      await pause(delayMs, signal);
    }
  })().catch(onFatal);

  return {
    async stop() {
      stopping.abort();
      await loop;
    },
  };
}
