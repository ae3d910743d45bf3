import { topics } from '../../schemas/topics.ts';
import { OBSERVED_CHANNEL, requestSubject } from '../../schemas/messages/requests.ts';
import type { PricesMessage } from '../../schemas/messages/prices.ts';
import { tableSql } from '../define.ts';
import type { PostgresProjection } from '../define.ts';

/** The message has a price that is not older than the stored one. */
const IS_NEWER = `(excluded.observed_at >= coalesce(known.observed_at, excluded.observed_at))`;

/**
 * The newest price of each token by its source's own time; of two with the same time, the one published later. All
 * messages about a token are in one partition. Past prices that are filled in later change nothing.
 */
export const latestPrices: PostgresProjection<PricesMessage> = {
  kind: 'postgres',
  name: 'latest-prices',
  version: 1,
  topic: topics.prices,
  ddl: tableSql(import.meta.url),
  notify: {
    channel: OBSERVED_CHANNEL,
    payload: ({ token }) => requestSubject({ type: 'price.requested', token }),
  },
  async fold(tx, message, { schema }) {
    const { token, requested_at: requestedAt = 0 } = message;
    const observed =
      message.type === 'price.observed' ? [message.price, message.source, message.observed_at] : [];
    const [price = null, source = null, observedAt = null] = observed;
    await tx.query(
      `INSERT INTO ${schema}.latest_prices AS known (token, price, source, observed_at, requested_at)
       VALUES ($1, $2, $3, $4, $5)
       ON CONFLICT (token) DO UPDATE SET
         price = CASE WHEN ${IS_NEWER} THEN excluded.price ELSE known.price END,
         source = CASE WHEN ${IS_NEWER} THEN excluded.source ELSE known.source END,
         observed_at = CASE WHEN ${IS_NEWER} THEN excluded.observed_at ELSE known.observed_at END,
         requested_at = greatest(known.requested_at, excluded.requested_at)
       WHERE ${IS_NEWER} OR excluded.requested_at > known.requested_at`,
      [token, price, source, observedAt, requestedAt],
    );
  },
};
