import type { Publisher } from '../../infra/kafka/client.ts';
import { sleep } from '../../infra/lifecycle.ts';
import type { Logger } from '../../infra/log.ts';
import { topics } from '../../schemas/topics.ts';
import type { UsageMessage } from '../../schemas/messages/usage.ts';
import { HOUR_MS } from '../http/times.ts';

/** Counts the calls of API keys in memory and publishes the counts every few seconds. */
export interface UsageCounter {
  count(keyId: number, status: number): void;
  /** Publishes what is counted and stops. */
  close(): Promise<void>;
}

/** A crash loses the counts of at most this time. */
const PUBLISH_INTERVAL_MS = 5000;

type Count = Pick<UsageMessage, 'key_id' | 'hour' | 'calls' | 'successful' | 'last_used_at'>;

export function createUsageCounter({
  publisher,
  now,
  log,
}: {
  readonly publisher: Pick<Publisher, 'publish'>;
  /** Unix milliseconds. */
  readonly now: () => number;
  readonly log: Logger;
}): UsageCounter {
  let counts = new Map<string, Count>();
  const stopping = new AbortController();

  const add = (more: Count): void => {
    const name = `${more.key_id}:${more.hour}`;
    const previous = counts.get(name);
    counts.set(name, {
      ...more,
      calls: more.calls + (previous?.calls ?? 0),
      successful: more.successful + (previous?.successful ?? 0),
      last_used_at: Math.max(more.last_used_at, previous?.last_used_at ?? 0),
    });
  };

  const publish = async (): Promise<void> => {
    const batch = [...counts.values()];
    if (batch.length === 0) return;
    counts = new Map();
    const counted_at = now();
    try {
      await publisher.publish(
        topics.usage,
        batch.map((one) => ({
          key: String(one.key_id),
          value: { type: 'usage.counted' as const, v: 1 as const, ...one, counted_at },
        })),
      );
    } catch (error) {
      // Not retried: the publish may have succeeded, and counts shown beside a ceiling must not be too high.
      log.warn({ err: error, keys: batch.length }, 'usage counts lost');
    }
  };

  const publishing = (async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await sleep(PUBLISH_INTERVAL_MS, stopping.signal);
      await publish();
    }
  })();

  return {
    count(keyId, status) {
      const at = now();
      const hour = Math.floor(at / HOUR_MS) * (HOUR_MS / 1000);
      add({ key_id: keyId, hour, calls: 1, successful: status < 300 ? 1 : 0, last_used_at: at });
    },
    async close() {
      stopping.abort();
      await publishing;
      // Calls that ended during the last publish.
      await publish();
    },
  };
}
