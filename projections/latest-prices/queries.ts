import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { felt } from '../../schemas/messages/common.ts';

/** Read side of the newest prices. `schema` is the served build's: `served.schema('latest-prices')`. */

const row = z
  .object({
    token: felt,
    price: z.string().nullable(),
    observed_at: z.number().nullable(),
    requested_at: z.number(),
  })
  .transform(({ token, price, observed_at: observedAt, requested_at: requestedAt }) => ({
    token,
    price: price === null || observedAt === null ? null : { usd: price, observedAt },
    requestedAt,
  }));

/** `price` null: it was requested, and the source had none. `usd` is a decimal string; times are unix milliseconds. */
export type LatestPrice = z.infer<typeof row>;

/** The newest prices of these tokens; those that were never requested are missing. */
export async function latestPricesOf(
  db: Sql,
  schema: string,
  tokens: readonly Felt[],
): Promise<ReadonlyMap<Felt, LatestPrice>> {
  if (tokens.length === 0) return new Map();
  const rows = await sqlRows(
    db,
    row,
    `SELECT token, price, observed_at, requested_at FROM ${schema}.latest_prices WHERE token = ANY($1)`,
    [[...new Set(tokens)]],
  );
  return new Map(rows.map((one) => [one.token, one]));
}
