import type { Kafka } from '../infra/kafka/client.ts';
import type { Logger } from '../infra/log.ts';
import { isTableGone } from '../infra/postgres/client.ts';
import { createRetryWhileUnavailable, isStoreUnavailable } from '../infra/retry-while-unavailable.ts';
import type { RetryWhileUnavailable } from '../infra/retry-while-unavailable.ts';
import type { Topic } from '../schemas/topics.ts';

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
    isRetryable: (error) => isStoreUnavailable(error) || isTableGone(error),
    log,
    signal,
  });
}

/** Where to go on: the position, or the log's beginning where there is none, or none that the log holds. */
export async function placeInLog(
  kafka: Pick<Kafka, 'offsets'>,
  topic: Topic<unknown>,
  partition: number,
  position: number | null,
): Promise<number | 'beginning'> {
  if (position === null) return 'beginning';
  const range = (await kafka.offsets(topic)).find((entry) => entry.partition === partition);
  return range !== undefined && position >= range.low && position <= range.high ? position : 'beginning';
}

/** A message's JSON; undefined where it is none. */
export function jsonOf(value: Buffer): unknown {
  try {
    return JSON.parse(value.toString('utf8'));
  } catch {
    return undefined;
  }
}
