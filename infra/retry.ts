import { systemClock } from './clock.ts';
import type { Clock } from './clock.ts';

export interface Backoff {
  /** Delay after the first failure, in milliseconds. Default 100. */
  readonly baseMs?: number;
  /** Upper bound of the delay, in milliseconds. Default 10,000. */
  readonly maxMs?: number;
}

export interface RetryOptions extends Backoff {
  /** True for an error that another attempt can get past. Every other error is thrown at once. */
  readonly isRetryable: (error: unknown) => boolean;
  /** Ends the wait between two attempts; its reason is thrown. An attempt under way is not interrupted. */
  readonly signal?: AbortSignal;
  /** Milliseconds from the first attempt after which no further one begins: the last error is thrown. Default: none. */
  readonly deadlineMs?: number;
  /** Attempts in all, after which the last error is thrown. Default: no limit. */
  readonly maxAttempts?: number;
  /** Lower bound of the delay after an error, such as what a server asks for in Retry-After. Default: none. */
  readonly minDelayMs?: (error: unknown) => number;
  /** Called before each wait; `attempt` is 1 for the first failure. */
  readonly onRetry?: (error: unknown, retry: { readonly attempt: number; readonly delayMs: number }) => void;
  readonly clock?: Clock;
}

/**
 * Milliseconds to wait after the n-th failure (1 for the first): exponential up to `maxMs`, less up to half by chance,
 * so that processes that failed together do not retry in step.
 */
export function backoffMs(
  failures: number,
  { baseMs = 100, maxMs = 10_000 }: Backoff,
  random: number,
): number {
  const longest = Math.min(maxMs, baseMs * 2 ** Math.min(failures - 1, 30));
  return Math.round(longest * (1 - random / 2));
}

/**
 * Repeats `work` until it succeeds, with exponential backoff and jitter.
 *
 * @throws the error of an attempt that is not retryable, the last error once the deadline or the number of attempts is
 * reached, or the reason of the signal
 */
export async function retry<T>(work: (attempt: number) => Promise<T>, options: RetryOptions): Promise<T> {
  const {
    isRetryable,
    signal,
    deadlineMs = Infinity,
    maxAttempts = Infinity,
    onRetry,
    clock = systemClock,
  } = options;
  const startedAt = clock.now();
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work(attempt);
    } catch (error) {
      if (!isRetryable(error) || attempt >= maxAttempts) throw error;
      signal?.throwIfAborted();
      const delayMs = Math.max(options.minDelayMs?.(error) ?? 0, backoffMs(attempt, options, clock.random()));
      if (clock.now() + delayMs - startedAt > deadlineMs) throw error;
      onRetry?.(error, { attempt, delayMs });
      await clock.sleep(delayMs, signal);
      signal?.throwIfAborted();
    }
  }
}

/**
 * Repeats `read` until `isDone` accepts its result, or the time is up; returns the last result.
 *
 * @throws the reason of the signal, also during a wait
 */
export async function pollUntil<T>(
  read: () => Promise<T>,
  isDone: (result: T) => boolean,
  options: {
    readonly everyMs: number;
    readonly withinMs: number;
    readonly clock?: Pick<Clock, 'now' | 'sleep'>;
    readonly signal?: AbortSignal;
  },
): Promise<T> {
  const { everyMs, withinMs, clock = systemClock, signal } = options;
  const deadline = clock.now() + withinMs;
  for (;;) {
    const result = await read();
    if (isDone(result) || clock.now() >= deadline) return result;
    await clock.sleep(everyMs, signal);
    signal?.throwIfAborted();
  }
}
