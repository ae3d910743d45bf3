import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { latestPricesOf } from '../../projections/latest-prices/queries.ts';
import { pricesAtTimes } from '../../projections/prices/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ServedBuilds } from '../../projections/served.ts';

/** Prices in US dollars as decimal strings. */
export interface PriceReader {
  /** Current prices; tokens without one are absent. */
  now(served: ServedBuilds, tokens: readonly Felt[]): Promise<ReadonlyMap<Felt, string>>;
  /** Prices at each of these times (unix milliseconds, ascending); tokens without one are absent. */
  atTimes(
    served: ServedBuilds,
    tokens: readonly Felt[],
    times: readonly number[],
  ): Promise<readonly ReadonlyMap<Felt, string>[]>;
}

export function createPriceReader(pool: Sql, clickhouse: ClickHouse): PriceReader {
  return {
    async now(served, tokens) {
      const known = await latestPricesOf(pool, served.schema('latest-prices'), tokens);
      return new Map(
        [...known.values()].flatMap(({ token, price }) =>
          price === null ? [] : [[token, price.usd] as const],
        ),
      );
    },
    atTimes: (served, tokens, times) => pricesAtTimes(clickhouse, served, tokens, times),
  };
}
