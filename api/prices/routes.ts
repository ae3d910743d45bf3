import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import { latestPricesOf } from '../../projections/latest-prices/queries.ts';
import type { LatestPrice } from '../../projections/latest-prices/queries.ts';
import { priceAnswer, pricesAnswer } from '../../schemas/api/prices.ts';
import { parseFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import { invalidInput } from '../http/errors.ts';
import { address, boolean } from '../http/params.ts';
import type { RefreshBus } from '../commands/refresh.ts';
import { defineRoute } from '../http/route.ts';
import type { Route, ServedBuilds } from '../http/route.ts';
import { iso } from '../http/times.ts';

export interface PriceRouteDeps {
  /** May only SELECT. */
  readonly pool: Sql;
  readonly refreshes: RefreshBus;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Common tokens are read more often than this; of any other that is asked for, an older price is asked for again. */
const FRESH_MS = 5 * 60_000;
const MOST_TOKENS = 100;
/** Where nothing reads a feed, nobody is to wait for it again and again. */
const SILENCE_MS = 60_000;

export function priceRoutes({ pool, refreshes, now }: PriceRouteDeps): Route[] {
  const read = async (served: ServedBuilds, tokens: readonly Felt[]) =>
    await latestPricesOf(pool, served.schema('latest-prices'), tokens);

  /** Until when the feed is taken for silent: it did not answer the last who waited. */
  let silentUntil = 0;

  /** Waits for the feed's answer about a token; what is known when there is none in time. */
  const refreshed = async (
    served: ServedBuilds,
    token: Felt,
    signal: AbortSignal,
  ): Promise<LatestPrice | undefined> => {
    const request = { type: 'price.requested' as const, token };
    const found = await refreshes.refresh(
      [request],
      async (requestedAt) => {
        const known = (await read(served, [token])).get(token);
        return known !== undefined && known.requestedAt >= requestedAt(request) ? known : null;
      },
      signal,
    );
    silentUntil = found === null && !signal.aborted ? now() + SILENCE_MS : 0;
    return found ?? (await read(served, [token])).get(token);
  };

  const askForOld = (tokens: readonly Felt[], known: ReadonlyMap<Felt, LatestPrice>): void => {
    const isOld = (token: Felt): boolean => {
      const { price, requestedAt = 0 } = known.get(token) ?? { price: null };
      return now() - Math.max(requestedAt, price?.observedAt ?? 0) > FRESH_MS;
    };
    const old = tokens.filter(isOld);
    if (old.length > 0) refreshes.request(old.map((token) => ({ type: 'price.requested', token })));
  };

  const one = defineRoute({
    method: 'GET',
    path: '/api/price/',
    summary: 'Price of a token',
    description: [
      'In US dollars. 0: the feed does not know the token. One that nobody asked for before is asked of the feed; with',
      '`force_refresh` any is, and what is known is answered when the feed says nothing within 8 s.',
    ].join(' '),
    tag: 'Prices',
    auth: 'key',
    query: z.object({
      token_address: address(),
      force_refresh: boolean('Asks the feed in any case').optional(),
    }),
    response: { 200: priceAnswer },
    async handler({ input: { query }, served, request }) {
      const { token_address: token, force_refresh: isForced = false } = query;
      const known = await read(served, [token]);
      const isAsked = isForced || (!known.has(token) && now() > silentUntil);
      if (!isAsked) askForOld([token], known);
      const found = isAsked ? await refreshed(served, token, request.signal) : known.get(token);
      return {
        status: 200,
        body: {
          success: true as const,
          data: { token_address: token, price_usd: usdOf(found), force_refresh: isForced },
        },
      };
    },
  });

  const many = defineRoute({
    method: 'POST',
    path: '/api/prices/',
    summary: 'Prices of up to 100 tokens',
    description:
      'In the order asked, as they are known; what nobody asked for before is asked of the feed, and shows in a later answer.',
    tag: 'Prices',
    auth: 'key',
    body: z.object({ token_addresses: z.array(z.string()).min(1).max(MOST_TOKENS) }),
    response: { 200: pricesAnswer },
    async handler({ input: { body }, served }) {
      const tokens = body.token_addresses.map((text) => {
        const token = parseFelt(text);
        if (token === null) {
          throw invalidInput({ token_addresses: [`${text.slice(0, 80)} is not an address.`] });
        }
        return token;
      });
      const known = await read(served, tokens);
      askForOld([...new Set(tokens)], known);
      const data = tokens.map((token) => {
        const price = known.get(token)?.price ?? null;
        return {
          token_address: token,
          price_usd: usdOf(known.get(token)),
          price_updated_at: price === null ? null : iso(price.observedAt),
        };
      });
      return { status: 200, body: { success: true as const, data } };
    },
  });

  return [one, many];
}

/** The contract's JSON number; an untracked token yields 0. */
function usdOf(latest: LatestPrice | undefined): number {
  return Number(latest?.price?.usd ?? 0);
}
