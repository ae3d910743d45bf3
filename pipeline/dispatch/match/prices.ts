import { z } from 'zod';

import { sqlRow } from '../../../infra/postgres/client.ts';
import type { PoolClient, Sql } from '../../../infra/postgres/client.ts';
import { crossedThresholds } from '../../../projections/webhooks/queries.ts';
import type { Crossing } from '../../../projections/webhooks/queries.ts';
import type { PricesMessage } from '../../../schemas/messages/prices.ts';
import { topics } from '../../../schemas/topics.ts';
import { insertDeliveries } from '../deliveries.ts';
import type { NewDelivery } from '../deliveries.ts';
import { bodyText } from './body.ts';
import type { MatchDeps } from '../deps.ts';
import { deliveryId } from './identity.ts';
import type { Matcher } from './matcher.ts';

const DAY_MS = 86_400_000;

type PriceObserved = Extract<PricesMessage, { type: 'price.observed' }>;

const priceRow = z.object({ price: z.string(), observed_at: z.number() });

/** The last price of a token that was compared with thresholds. */
async function lastPrice(db: Sql, token: string): Promise<z.infer<typeof priceRow> | null> {
  return await sqlRow(
    db,
    priceRow,
    'SELECT price::text, observed_at FROM tds.dispatch_prices WHERE token = $1',
    [token],
  );
}

async function storePrice(tx: PoolClient, { token, price, observed_at: at }: PriceObserved): Promise<void> {
  await tx.query(
    `INSERT INTO tds.dispatch_prices (token, price, observed_at) VALUES ($1, $2, $3)
     ON CONFLICT (token) DO UPDATE SET price = excluded.price, observed_at = excluded.observed_at`,
    [token, price, at],
  );
}

/** `price.threshold`. The last price of every token is stored in the transaction that stores the deliveries of a crossing. */
export function priceMatcher({ pool, webhooks, clock, metrics }: MatchDeps): Matcher<PricesMessage> {
  return {
    name: 'prices',
    topic: topics.prices,
    concurrency: 1,
    // A day back, so that there is a price to compare the next one with.
    since: async () => clock.wallTime() - DAY_MS,
    async open() {
      const schema = await webhooks();
      return {
        isRelevant: () => true,
        async match(message, { timestamp }) {
          if (message.type !== 'price.observed') return null;
          // Published history is no movement of the price.
          if (message.cause === 'backfill') return null;
          const { token, price, observed_at: observedAt } = message;
          const last = await lastPrice(pool, token);
          if (last !== null && observedAt <= last.observed_at) return null;
          const crossings =
            last === null || schema === null
              ? []
              : await crossedThresholds(pool, schema, { token, from: last.price, to: price, at: timestamp });
          const previous = last?.price ?? price;
          const deliveries = crossings.map((crossing) =>
            deliveryOf(message, previous, crossing, clock.wallTime()),
          );
          return async (tx) => {
            await storePrice(tx, message);
            await insertDeliveries(tx, deliveries);
            metrics.matched.inc({ event: 'price.threshold' }, deliveries.length);
          };
        },
      };
    },
  };
}

function deliveryOf(
  { token, price, observed_at: observedAt }: PriceObserved,
  previous: string,
  crossing: Crossing,
  createdAt: number,
): NewDelivery {
  const { webhook_id: webhookId, price_above: above, price_below: below } = crossing;
  const event = 'price.threshold';
  return {
    id: deliveryId(webhookId, event, token, observedAt, above, below),
    webhookId,
    event,
    body: bodyText(event, createdAt, {
      token_address: token,
      previous_price: previous,
      new_price: price,
      crossed_above: crossing.crossed_above,
      crossed_below: crossing.crossed_below,
      threshold_above: above,
      threshold_below: below,
    }),
    createdAt,
  };
}
