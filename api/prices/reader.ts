import type { Sql } from '../../infra/postgres/client.ts';
import { latestPricesOf } from '../../projections/latest-prices/queries.ts';
import type { PriceReader } from '../balances/prices.ts';

/** The newest prices that are known. Of the past none is yet. */
export function createPriceReader(pool: Sql): PriceReader {
  return {
    async now(served, tokens) {
      const known = await latestPricesOf(pool, served.schema('latest-prices'), tokens);
      return new Map(
        [...known.values()].flatMap(({ token, price }) =>
          price === null ? [] : [[token, price.usd] as const],
        ),
      );
    },
    at: async (_, __, times) => times.map(() => null),
  };
}
