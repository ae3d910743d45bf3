import { pause } from '../../infra/lifecycle.ts';
import type { Publisher } from '../../infra/kafka/client.ts';
import { adsMessage } from '../../schemas/messages/ads.ts';
import type { AdsMessage } from '../../schemas/messages/ads.ts';
import { topics } from '../../schemas/topics.ts';
import { unavailable } from '../http/errors.ts';
import { createWaiting } from '../commands/waiting.ts';

export interface AdEvents {
  /**
   * Appends an event to the log, and waits until it is counted: a list that is asked for afterwards knows of it. What takes
   * longer than it may is counted later. Throws 503 when the log does not take it, which leaves open whether it did.
   */
  count(
    event: Pick<AdsMessage, 'type' | 'id' | 'ad_id'>,
    isCounted: (id: string) => Promise<boolean>,
  ): Promise<void>;
  /** Wakes who waits for this event; called for every notification. */
  wake(id: string): void;
}

export function createAdEvents({
  publisher,
  timeoutMs,
  now,
}: {
  readonly publisher: Pick<Publisher, 'publish'>;
  readonly timeoutMs: number;
  /** Unix milliseconds. */
  readonly now: () => number;
}): AdEvents {
  const waiting = createWaiting();
  return {
    async count({ type, id, ad_id: adId }, isCounted) {
      const deadline = performance.now() + timeoutMs;
      const value = adsMessage.parse({ type, v: 1, id, ad_id: adId, observed_at: now() });
      const published = publisher.publish(topics.ads, [{ key: String(adId), value }]).then(() => true);
      const tooLate = new AbortController();
      const isInLog = await Promise.race([
        published,
        pause(timeoutMs, tooLate.signal).then(() => false),
      ]).finally(() => tooLate.abort());
      if (!isInLog) throw unavailable('unavailable', 'The service is temporarily unavailable.', 2);
      await waiting.until(id, async () => ((await isCounted(id)) ? true : null), deadline);
    },
    wake: (id) => waiting.wake(id),
  };
}
