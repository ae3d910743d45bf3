import { isRetryable } from '../schemas/errors.ts';
import type { Clock } from './clock.ts';
import type { Logger } from './log.ts';
import { isPostgresUnavailable } from './postgres/client.ts';
import { retry } from './retry.ts';

/** Repeats `work` until the stores that it needs are available. */
export type RetryWhileUnavailable = <T>(work: () => Promise<T>) => Promise<T>;

export interface UnavailableRetryOptions {
  /** The store that is retried, or the component that retries: a field of the log lines. */
  readonly component: string;
  /** True for an error that ends by itself. Default: `isStoreUnavailable`. */
  readonly isRetryable?: (error: unknown) => boolean;
  /** Ends the retrying; its reason is thrown. An attempt under way is not interrupted. */
  readonly signal: AbortSignal;
  readonly log: Logger;
  readonly clock?: Clock;
  /** Called with true after each failed attempt, and with false once an attempt has succeeded. */
  readonly onWaiting?: (isWaiting: boolean) => void;
}

/** True for a retryable `AppError` and for a PostgreSQL server that is unavailable. */
export function isStoreUnavailable(error: unknown): boolean {
  return isRetryable(error) || isPostgresUnavailable(error);
}

/**
 * Retries without a deadline, because what was read from the log must not be dropped while a store is unavailable. Any
 * other error is thrown at once.
 */
export function createRetryWhileUnavailable(options: UnavailableRetryOptions): RetryWhileUnavailable {
  const { component, signal, log, clock, onWaiting } = options;
  return async (work) => {
    let failures = 0;
    const result = await retry(work, {
      isRetryable: options.isRetryable ?? isStoreUnavailable,
      signal,
      ...(clock === undefined ? {} : { clock }),
      onRetry(error, { attempt, delayMs }) {
        failures = attempt;
        onWaiting?.(true);
        log.warn({ component, attempt, delayMs, err: error }, 'store unavailable, retrying');
      },
    });
    if (failures > 0) {
      onWaiting?.(false);
      log.info({ component, failures }, 'store available again');
    }
    return result;
  };
}
