import type { Kafka } from '../infra/kafka/client.ts';
import { pause } from '../infra/lifecycle.ts';
import type { Logger } from '../infra/log.ts';
import { isPostgresUnavailable, isTableGone } from '../infra/postgres/client.ts';
import { isRetryable } from '../schemas/errors.ts';
import type { Topic } from '../schemas/topics.ts';

const PAUSE_MS = 1000;

/**
 * Runs work again for as long as a store that it needs is away, or a table that it read is no longer the one that is served:
 * what was read from the log is not dropped. Work looks up the names of tables itself.
 */
export type Patience = <T>(work: () => Promise<T>) => Promise<T>;

/** @param reader who waits, for the log lines */
export function createPatience(reader: string, log: Logger, signal: AbortSignal): Patience {
  return async (work) => {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        const isPassing = isPostgresUnavailable(error) || isTableGone(error) || isRetryable(error);
        if (!isPassing || signal.aborted) throw error;
        log.warn({ err: error, reader }, 'a store does not answer as it should; trying again');
        await pause(PAUSE_MS, signal);
      }
    }
  };
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
