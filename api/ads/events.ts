import type { Publisher } from '../../infra/kafka/client.ts';
import { withTimeout } from '../../infra/lifecycle.ts';
import { createWaiters } from '../../infra/waiters.ts';
import { adsMessage } from '../../schemas/messages/ads.ts';
import type { AdsMessage } from '../../schemas/messages/ads.ts';
import { topics } from '../../schemas/topics.ts';
import { unavailable } from '../http/errors.ts';

export interface AdEvents {
  /**
   * Appends an event to the log and waits until the projection has counted it, so that a following list query reflects
   * it; on timeout it is counted later. Throws 503 when the append fails or times out, after which it may still arrive.
   */
  count(
    event: Pick<AdsMessage, 'type' | 'id' | 'ad_id'>,
    isCounted: (id: string) => Promise<boolean>,
  ): Promise<void>;
  /** Called for every notification that an event is counted. */
  notify(id: string): void;
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
  const waiters = createWaiters();
  return {
    async count({ type, id, ad_id: adId }, isCounted) {
      const deadline = performance.now() + timeoutMs;
      const value = adsMessage.parse({ type, v: 1, id, ad_id: adId, observed_at: now() });
      const published = publisher.publish(topics.ads, [{ key: String(adId), value }]).then(() => true);
      if (!(await withTimeout(published, timeoutMs, false)))
        throw unavailable('unavailable', 'The service is temporarily unavailable.', 2);
      await waiters.until([id], async () => ((await isCounted(id)) ? true : null), { deadline });
    },
    notify: (id) => waiters.notify(id),
  };
}
