import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { latestPricesOf } from '../../projections/latest-prices/queries.ts';
import { pricesAtTimes } from '../../projections/prices/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import type { AsOf } from '../http/as-of.ts';

/** Prices at the time of the block as of which to answer, else the current ones. */
export async function pricesFor(
  deps: {
    readonly pool: Sql;
    readonly clickhouse: RowReader;
    readonly served: ServedBuilds;
    readonly asOf: AsOf | null;
  },
  tokens: readonly Felt[],
): Promise<ReadonlyMap<Felt, string>> {
  const { clickhouse, served, asOf } = deps;
  if (asOf === null) return await currentPrices(deps, tokens);
  const [prices] = await pricesAtTimes(clickhouse, served, tokens, [asOf.timestamp * 1000]);
  return prices ?? new Map();
}

/** Current prices in US dollars as decimal strings; tokens without one are absent. */
async function currentPrices(
  { pool, served }: { readonly pool: Sql; readonly served: ServedBuilds },
  tokens: readonly Felt[],
): Promise<ReadonlyMap<Felt, string>> {
  const known = await latestPricesOf(pool, served.schema('latest-prices'), tokens);
  return new Map(
    [...known.values()].flatMap(({ token, price }) => (price === null ? [] : [[token, price.usd] as const])),
  );
}
