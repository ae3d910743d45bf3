import type { Sql } from '../../infra/postgres/client.ts';
import { latestPricesOf } from '../../projections/latest-prices/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ServedBuilds } from '../../projections/served.ts';

/** Current prices in US dollars as decimal strings; tokens without one are absent. */
export async function currentPrices(
  { pool, served }: { readonly pool: Sql; readonly served: ServedBuilds },
  tokens: readonly Felt[],
): Promise<ReadonlyMap<Felt, string>> {
  const known = await latestPricesOf(pool, served.schema('latest-prices'), tokens);
  return new Map(
    [...known.values()].flatMap(({ token, price }) => (price === null ? [] : [[token, price.usd] as const])),
  );
}
