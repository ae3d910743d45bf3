import { topics } from '../../schemas/topics.ts';
import { OBSERVED_CHANNEL, requestSubject } from '../../schemas/messages/requests.ts';
import type { PricesMessage } from '../../schemas/messages/prices.ts';
import { tableSql } from '../define.ts';
import type { PostgresProjection } from '../define.ts';

/**
 * The newest price of each token by its source's own time; of two of the same time the one that was published later. All
 * messages about a token are in one partition, and prices of the past, which are filled in later, change nothing.
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
    await tx.query(
      `INSERT INTO ${schema}.latest_prices AS known (token, price, source, observed_at, requested_at)
       VALUES ($1, $2, $3, $4, $5)
       ON CONFLICT (token) DO UPDATE SET requested_at = greatest(known.requested_at, excluded.requested_at)`,
      [token, null, null, null, requestedAt],
    );
    if (message.type !== 'price.observed') return;
    await tx.query(
      `UPDATE ${schema}.latest_prices SET price = $2, source = $3, observed_at = $4
       WHERE token = $1 AND (observed_at IS NULL OR observed_at <= $4)`,
      [token, message.price, message.source, message.observed_at],
    );
  },
};
