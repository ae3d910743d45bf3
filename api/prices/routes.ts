import { z } from 'zod';

import { createLruCache } from '../../infra/lru.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { latestPricesOf } from '../../projections/latest-prices/queries.ts';
import type { LatestPrice } from '../../projections/latest-prices/queries.ts';
import { priceAnswer, pricesAnswer } from '../../schemas/api/prices.ts';
import { parseFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import { BY_TIME } from '../http/as-of.ts';
import { invalidInput } from '../http/errors.ts';
import { address, boolean } from '../http/params.ts';
import { refreshCaller } from '../commands/refresh.ts';
import type { RefreshBus } from '../commands/refresh.ts';
import { defineRoute } from '../http/route.ts';
import type { RequestInfo, Route } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { iso } from '../http/times.ts';

export interface PriceRouteDeps {
  readonly refreshes: RefreshBus;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Common tokens are observed more often than this; a refresh of any other is requested when its price is older. */
const FRESH_MS = 5 * 60_000;
const MAX_TOKENS = 100;
/** After the feed did not answer a caller in time, no request of the caller waits for it for this long. */
const SILENCE_MS = 60_000;
const MAX_SILENT_CALLERS = 10_000;

export function priceRoutes(deps: PriceRouteDeps): Route[] {
  const latest = createLatestPrices(deps);
  return [priceRoute(latest), pricesRoute(latest)];
}

interface PriceReading {
  readonly pool: Sql;
  readonly served: ServedBuilds;
}

interface LatestPrices {
  read(from: PriceReading, tokens: readonly Felt[]): Promise<ReadonlyMap<Felt, LatestPrice>>;
  /** Waits for the feed's price of a token; the stored price when it does not arrive in time. */
  refresh(from: PriceReading, token: Felt, request: RequestInfo): Promise<LatestPrice | undefined>;
  /** Requests refreshes of old prices without waiting. */
  requestOld(tokens: readonly Felt[], stored: ReadonlyMap<Felt, LatestPrice>, request: RequestInfo): void;
  /** False for a while after the feed did not answer this caller, whose line may be the reason. */
  isFeedAnswering(request: RequestInfo): boolean;
}

function createLatestPrices({ refreshes, now }: PriceRouteDeps): LatestPrices {
  /** By caller, when the feed had not answered in time. */
  const silentSince = createLruCache<string, number>(MAX_SILENT_CALLERS);
  const read: LatestPrices['read'] = async ({ pool, served }, tokens) =>
    await latestPricesOf(pool, served.schema('latest-prices'), tokens);
  // Absolute: the clock may be set back.
  const isOld = ({ price, requestedAt }: Partial<LatestPrice>): boolean =>
    Math.abs(now() - Math.max(requestedAt ?? 0, price?.observedAt ?? 0)) > FRESH_MS;
  return {
    read,
    async refresh(from, token, info) {
      const caller = refreshCaller(info);
      const request = { type: 'price.requested' as const, token, caller };
      const fresh = await refreshes.refresh(
        [request],
        async (requestedAt) => {
          const stored = (await read(from, [token])).get(token);
          return stored !== undefined && stored.requestedAt >= requestedAt(request) ? stored : null;
        },
        info.signal,
      );
      if (fresh !== null) silentSince.delete(caller);
      else if (!info.signal.aborted) silentSince.set(caller, now());
      return fresh ?? (await read(from, [token])).get(token);
    },
    requestOld(tokens, stored, info) {
      const old = tokens.filter((token) => isOld(stored.get(token) ?? {}));
      if (old.length === 0) return;
      const caller = refreshCaller(info);
      refreshes.request(old.map((token) => ({ type: 'price.requested', token, caller })));
    },
    isFeedAnswering: (info) =>
      Math.abs(now() - (silentSince.get(refreshCaller(info)) ?? -Infinity)) > SILENCE_MS,
  };
}

function priceRoute(latest: LatestPrices): Route {
  return defineRoute({
    id: 'getPrice',
    method: 'GET',
    path: '/api/price/',
    summary: 'Get the price of a token',
    description: [
      'In US dollars; 0 if the feed does not know the token. The feed is queried if no price is stored, or with',
      '`force_refresh`; if it does not answer within 8 s, the stored price is returned.',
    ].join(' '),
    tag: 'Prices',
    auth: 'key',
    asOf: BY_TIME,
    query: z.object({
      token_address: address(),
      force_refresh: boolean(
        'Query the feed, whatever the age of the stored price. Callers within 10 s of a reading of the token share that reading.',
      ).optional(),
    }),
    response: { 200: priceAnswer },
    async handler({ input: { query }, served, request, pool }) {
      const { token_address: token, force_refresh: isForced = false } = query;
      const stored = await latest.read({ pool, served }, [token]);
      const mustWait = isForced || (!stored.has(token) && latest.isFeedAnswering(request));
      if (!mustWait) latest.requestOld([token], stored, request);
      const found = mustWait ? await latest.refresh({ pool, served }, token, request) : stored.get(token);
      return {
        status: 200,
        body: {
          success: true as const,
          data: { token_address: token, price_usd: usdOf(found), force_refresh: isForced },
        },
      };
    },
  });
}

function pricesRoute(latest: LatestPrices): Route {
  return defineRoute({
    id: 'getPrices',
    method: 'POST',
    path: '/api/prices/',
    summary: 'Get the prices of up to 100 tokens',
    description:
      'Returns stored prices in request order. The feed is queried for missing ones after the response.',
    tag: 'Prices',
    auth: 'key',
    asOf: BY_TIME,
    body: z.object({ token_addresses: z.array(z.string()).min(1).max(MAX_TOKENS) }),
    limits: [`Tokens: ${MAX_TOKENS}`],
    response: { 200: pricesAnswer },
    async handler({ input: { body }, served, request, pool }) {
      const tokens = body.token_addresses.map((text) => {
        const token = parseFelt(text);
        if (token === null) {
          throw invalidInput({ token_addresses: [`${text.slice(0, 80)} is not an address.`] });
        }
        return token;
      });
      const stored = await latest.read({ pool, served }, tokens);
      latest.requestOld([...new Set(tokens)], stored, request);
      const data = tokens.map((token) => {
        const price = stored.get(token)?.price ?? null;
        return {
          token_address: token,
          price_usd: usdOf(stored.get(token)),
          price_updated_at: price === null ? null : iso(price.observedAt),
        };
      });
      return { status: 200, body: { success: true as const, data } };
    },
  });
}

/** The contract's JSON number; an untracked token yields 0. */
function usdOf(latest: LatestPrice | undefined): number {
  return Number(latest?.price?.usd ?? 0);
}
