import type { Clock } from '../../infra/clock.ts';
import type { Logger } from '../../infra/log.ts';
import { createRetryWhileUnavailable, isStoreUnavailable } from '../../infra/retry-while-unavailable.ts';
import type { RetryWhileUnavailable } from '../../infra/retry-while-unavailable.ts';
import type { ProjectionMetrics } from './metrics.ts';

export interface StoreRetryDeps {
  readonly log: Logger;
  readonly metrics: ProjectionMetrics;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** `retryWhileUnavailable` of one store, shown by the metric `tds_projection_store_waiting`. */
export function createStoreRetry(
  store: 'clickhouse' | 'postgres' | 'postgres or kafka' | 'any store',
  { log, metrics, clock, signal }: StoreRetryDeps,
  isRetryable: (error: unknown) => boolean = isStoreUnavailable,
): RetryWhileUnavailable {
  return createRetryWhileUnavailable({
    component: store,
    isRetryable,
    signal,
    log,
    clock,
    onWaiting: (isWaiting) => metrics.waiting.set({ store }, isWaiting ? 1 : 0),
  });
}
