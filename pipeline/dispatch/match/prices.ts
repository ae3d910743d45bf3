import { z } from 'zod';

import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import { crossedThresholds } from '../../../projections/webhooks/queries.ts';
import type { PricesMessage } from '../../../schemas/messages/prices.ts';
import { topics } from '../../../schemas/topics.ts';
import { insertDeliveries } from '../deliveries.ts';
import type { NewDelivery } from '../deliveries.ts';
import { bodyText } from './body.ts';
import type { MatchDeps } from './deps.ts';
import { deliveryId } from './identity.ts';
import type { Matcher } from './matcher.ts';

const DAY_MS = 86_400_000;

const lastRow = z.object({ price: z.string(), observed_at: z.number() });

/** The last price of a token that a threshold was compared with. */
async function lastPrice(db: Sql, token: string): Promise<z.infer<typeof lastRow> | null> {
  const [row] = await sqlRows(
    db,
    lastRow,
    'SELECT price::text, observed_at FROM tds.dispatch_prices WHERE token = $1',
    [token],
  );
  return row ?? null;
}

/** `price.threshold`: the last price of every token is kept, and moves in the transaction that tells of a crossing. */
export function priceMatcher({ pool, webhooks, clock, metrics }: MatchDeps): Matcher<PricesMessage> {
  return {
    name: 'prices',
    topic: topics.prices,
    fetchBytes: 1_000_000,
    atOnce: 1,
    // So that a price is known when the next one comes.
    since: async () => clock.now() - DAY_MS,
    async open() {
      const schema = await webhooks();
      return {
        wants: () => true,
        async match(message, { timestamp }) {
          if (message.type !== 'price.observed') return null;
          const { token, price, observed_at: observedAt } = message;
          // History that is read in later is no movement of the price.
          if (observedAt < timestamp - DAY_MS) return null;
          const last = await lastPrice(pool, token);
          if (last !== null && observedAt <= last.observed_at) return null;
          const crossings =
            last === null || schema === null
              ? []
              : await crossedThresholds(pool, schema, { token, from: last.price, to: price, at: timestamp });
          const createdAt = clock.now();
          const deliveries = crossings.map((crossing): NewDelivery => {
            const { webhook_id: webhookId, price_above: above, price_below: below } = crossing;
            return {
              id: deliveryId(webhookId, 'price.threshold', token, observedAt, above, below),
              webhookId,
              event: 'price.threshold',
              body: bodyText('price.threshold', createdAt, {
                token_address: token,
                previous_price: last?.price ?? price,
                new_price: price,
                crossed_above: crossing.crossed_above,
                crossed_below: crossing.crossed_below,
                threshold_above: above,
                threshold_below: below,
              }),
              createdAt,
            };
          });
          return async (tx) => {
            await tx.query(
              `INSERT INTO tds.dispatch_prices (token, price, observed_at) VALUES ($1, $2, $3)
               ON CONFLICT (token) DO UPDATE SET price = excluded.price, observed_at = excluded.observed_at`,
              [token, price, observedAt],
            );
            await insertDeliveries(tx, deliveries);
            metrics.matched.inc({ event: 'price.threshold' }, deliveries.length);
          };
        },
      };
    },
  };
}
