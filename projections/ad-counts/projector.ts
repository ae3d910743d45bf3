import { AD_COUNTED_CHANNEL, AD_EVENT_LIFETIME_MS } from '../../schemas/messages/ads.ts';
import type { AdsMessage } from '../../schemas/messages/ads.ts';
import { topics } from '../../schemas/topics.ts';
import { tableSql } from '../define.ts';
import type { PostgresProjection } from '../define.ts';

/**
 * Counts impressions and clicks one by one, so that a cap is exact. Notifies the request that waits for an event, by its
 * id.
 */
export const adCounts: PostgresProjection<AdsMessage> = {
  kind: 'postgres',
  name: 'ad-counts',
  version: 1,
  topic: topics.ads,
  ddl: tableSql(import.meta.url),
  notify: { channel: AD_COUNTED_CHANNEL, payload: ({ id }) => id },
  async fold(tx, { type, id, ad_id: adId, observed_at: at }, { schema, timestamp }) {
    // As for commands: the log's time bounds that of the host.
    const expiredAt = Math.min(at, timestamp) - AD_EVENT_LIFETIME_MS;
    await tx.query(`DELETE FROM ${schema}.ad_events WHERE observed_at <= $1`, [expiredAt]);
    const isShown = type === 'ad.shown';
    await tx.query(
      `WITH fresh AS (
         INSERT INTO ${schema}.ad_events (id, observed_at) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING id
       )
       INSERT INTO ${schema}.ad_counts AS known (ad_id, impressions, clicks)
       SELECT $3::bigint, $4::bigint, $5::bigint FROM fresh
       ON CONFLICT (ad_id) DO UPDATE SET
         impressions = known.impressions + excluded.impressions, clicks = known.clicks + excluded.clicks`,
      [id, at, adId, isShown ? 1 : 0, isShown ? 0 : 1],
    );
  },
};
