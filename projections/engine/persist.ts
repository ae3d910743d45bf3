import type { Clock } from '../../infra/clock.ts';
import type { Logger } from '../../infra/log.ts';
import { isPostgresUnavailable } from '../../infra/postgres/client.ts';
import { isRetryable } from '../../schemas/errors.ts';
import type { ProjectionMetrics } from './metrics.ts';

export interface PersistOptions {
  /** True for an error that passes by itself: the store is away, starting, or short of something. */
  isUnavailable(error: unknown): boolean;
  /** Told of every failed attempt, and with null when the store answers again. */
  onWaiting(error: unknown, pauseMs: number): void;
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000;

/**
 * Tries for as long as it takes: what was read from the log is never dropped because a store is away. Pauses grow to
 * 10 s, with jitter, so that processes do not come back in step. Throws any error that waiting cannot mend, and, instead
 * of trying once more, the reason of a signal that fired.
 */
export async function persist<T>(work: () => Promise<T>, options: PersistOptions): Promise<T> {
  const { signal, clock } = options;
  for (let attempt = 0; ; attempt += 1) {
    try {
      const result = await work();
      if (attempt > 0) options.onWaiting(null, 0);
      return result;
    } catch (error) {
      if (!options.isUnavailable(error)) throw error;
      const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempt);
      const pauseMs = Math.round(longest * (0.5 + clock.random() / 2));
      options.onWaiting(error, pauseMs);
      await clock.sleep(pauseMs, signal);
      signal.throwIfAborted();
    }
  }
}

/** Postgres, or the log that a checkpoint is compared with, is away. */
export function isAway(error: unknown): boolean {
  return isRetryable(error) || isPostgresUnavailable(error);
}

/** Runs work against one store, waiting for it as long as it is away; the wait is in the log and in the metrics. */
export type Patience = <T>(work: () => Promise<T>) => Promise<T>;

export function patience(
  store: 'clickhouse' | 'postgres' | 'postgres or kafka',
  isUnavailable: (error: unknown) => boolean,
  {
    log,
    metrics,
    signal,
    clock,
  }: { log: Logger; metrics: ProjectionMetrics; signal: AbortSignal; clock: Clock },
): Patience {
  return (work) =>
    persist(work, {
      isUnavailable,
      signal,
      clock,
      onWaiting(error, pauseMs) {
        metrics.waiting.set({ store }, error === null ? 0 : 1);
        if (error === null) log.info({ store }, 'the store answers again');
        else
          log.warn(
            { store, err: error, pauseMs },
            `the store does not answer; waiting for ${nameOf(store, error)}`,
          );
      },
    });
}

/** As a person calls it. Where it may be either, the error tells which. */
function nameOf(store: 'clickhouse' | 'postgres' | 'postgres or kafka', error: unknown): string {
  if (store === 'clickhouse') return 'ClickHouse';
  return store === 'postgres' || isPostgresUnavailable(error) ? 'PostgreSQL' : 'Kafka';
}
