import type { Sql } from '../../infra/postgres/client.ts';
import { latestPricesOf } from '../../projections/latest-prices/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ServedBuilds } from '../route.ts';

/** What a token is worth in USD, as decimal strings; where nothing is known, none is given. */
export interface PriceReader {
  /** Of these tokens now; those without a price are missing. */
  now(served: ServedBuilds, tokens: readonly Felt[]): Promise<ReadonlyMap<Felt, string>>;
  /** Of one token at these times (unix seconds, descending), in their order. */
  at(served: ServedBuilds, token: Felt, times: readonly number[]): Promise<readonly (string | null)[]>;
}

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
