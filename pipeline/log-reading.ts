import type { Logger } from '../infra/log.ts';
import { isTableMissing } from '../infra/postgres/client.ts';
import { createRetryWhileUnavailable, isStoreUnavailable } from '../infra/retry-while-unavailable.ts';
import type { RetryWhileUnavailable } from '../infra/retry-while-unavailable.ts';

/**
 * `retryWhileUnavailable` for components that read the log. Also retries when a table has been replaced by a rebuild, so
 * `work` looks up the names of tables itself.
 */
export function createLogReaderRetry(
  component: string,
  log: Logger,
  signal: AbortSignal,
): RetryWhileUnavailable {
  return createRetryWhileUnavailable({
    component,
    isRetryable: (error) => isStoreUnavailable(error) || isTableMissing(error),
    log,
    signal,
  });
}
