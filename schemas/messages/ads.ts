import { z } from 'zod';

import { storableText, unixMillis } from './common.ts';

const event = {
  v: z.literal(1),
  /** Events with the same id are counted once. */
  id: storableText.min(1).max(200),
  ad_id: z.int(),
  observed_at: unixMillis,
};

export const adsMessage = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ad.shown'), ...event }),
  z.object({ type: z.literal('ad.clicked'), ...event }),
]);
export type AdsMessage = z.infer<typeof adsMessage>;

/** How long duplicates are recognised, in milliseconds of the log's time. */
export const AD_EVENT_LIFETIME_MS = 48 * 3_600_000;

/** `pg_notify` channel that carries the ids of counted events, notified after commit. */
export const AD_COUNTED_CHANNEL = 'tds_ads_counted';
