import { z } from 'zod';

import { isStorable } from '../text.ts';
import { unixMillis } from './common.ts';

const event = {
  v: z.literal(1),
  /** The same id twice is one event. */
  id: z.string().min(1).max(200).refine(isStorable, 'holds a NUL character or half of a surrogate pair'),
  ad_id: z.int(),
  observed_at: unixMillis,
};

export const adsMessage = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ad.shown'), ...event }),
  z.object({ type: z.literal('ad.clicked'), ...event }),
]);
export type AdsMessage = z.infer<typeof adsMessage>;

/** For how long an event is known by its id, in milliseconds of the log's time. */
export const AD_EVENT_LIFETIME_MS = 48 * 3_600_000;

/** `pg_notify` channel on which the ids of counted events are told, after the commit. */
export const AD_COUNTED_CHANNEL = 'tds_ads_counted';
