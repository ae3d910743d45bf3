import type { Publisher } from '../../infra/kafka/client.ts';
import { pause } from '../../infra/lifecycle.ts';
import type { Logger } from '../../infra/log.ts';
import { topics } from '../../schemas/topics.ts';
import type { UsageMessage } from '../../schemas/messages/usage.ts';

/** Counts the calls of API keys beside the requests, and tells the log every few seconds. */
export interface UsageCounter {
  count(keyId: number, status: number): void;
  /** Tells what is counted, and counts no more. */
  close(): Promise<void>;
}

/** What a crash may lose. */
const EVERY_MS = 5000;
const HOUR_MS = 3_600_000;

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
    const known = counts.get(name);
    counts.set(name, {
      ...more,
      calls: more.calls + (known?.calls ?? 0),
      successful: more.successful + (known?.successful ?? 0),
      last_used_at: Math.max(more.last_used_at, known?.last_used_at ?? 0),
    });
  };

  const tell = async (): Promise<void> => {
    const told = [...counts.values()];
    if (told.length === 0) return;
    counts = new Map();
    const counted_at = now();
    try {
      await publisher.publish(
        topics.usage,
        told.map((one) => ({
          key: String(one.key_id),
          value: { type: 'usage.counted' as const, v: 1 as const, ...one, counted_at },
        })),
      );
    } catch (error) {
      // It may have arrived all the same: counting less is better than counting twice what a ceiling is compared with.
      log.warn({ err: error, keys: told.length }, 'some seconds of usage are not counted');
    }
  };

  const telling = (async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await pause(EVERY_MS, stopping.signal);
      await tell();
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
      await telling;
    },
  };
}
