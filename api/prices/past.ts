import { z } from 'zod';

import { candles, pricesAtTimes } from '../../projections/prices/queries.ts';
import type { Candle } from '../../projections/prices/queries.ts';
import { priceAtAnswer, priceHistoryAnswer } from '../../schemas/api/prices.ts';
import { BY_TIME } from '../http/as-of.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { invalidInput, notFound } from '../http/errors.ts';
import { bucketStart, nextBucketStart } from '../http/intervals.ts';
import { address, format, interval, timestamp } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { figure } from '../http/stated-limits.ts';
import { iso } from '../http/times.ts';

export interface PastPriceDeps {
  /** Read-only. */
  readonly clickhouseFor: ClickHouseFor;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const MAX_BUCKETS = 5000;

const common = { method: 'GET', tag: 'Prices', auth: 'key', asOf: BY_TIME } as const;

export function pastPriceRoutes(deps: PastPriceDeps): Route[] {
  return [priceAtRoute(deps), historyRoute(deps)];
}

function priceAtRoute({ clickhouseFor }: PastPriceDeps): Route {
  return defineRoute({
    id: 'getPriceAt',
    ...common,
    path: '/api/price-at/',
    summary: 'Get the price of a token at a time',
    description: 'Returns the newest price at or before `at_time`, however old it is; 404 if there is none.',
    query: z.object({ token_address: address(), at_time: timestamp() }),
    response: { 200: priceAtAnswer },
    errors: [404],
    async handler({ input: { query }, served, request }) {
      const { token_address: token, at_time: time } = query;
      const clickhouse = clickhouseFor(request);
      const [prices] = await pricesAtTimes(clickhouse, served, [token], [time.getTime()]);
      const price = prices?.get(token);
      if (price === undefined) throw notFound('No price at or before at_time.');
      const data = { token_address: token, price_usd: Number(price), at_time: time.toISOString() };
      return { status: 200, body: { success: true as const, data } };
    },
  });
}

function historyRoute({ clickhouseFor, now }: PastPriceDeps): Route {
  return defineRoute({
    id: 'getPriceHistory',
    ...common,
    path: '/api/price-history/',
    summary: 'Get the prices of a token over time',
    description: [
      'Returns one bucket per interval, oldest first, in UTC; weeks begin on Monday. Buckets without a price are left out.',
      'Buckets are whole: the first one contains `start_time`. A response has at most 5,000 buckets; if there are more,',
      'continue with `next_start_time`.',
    ].join(' '),
    query: z.object({
      token_address: address(),
      start_time: timestamp(),
      end_time: timestamp('ISO 8601, UTC by default; now when absent').optional(),
      interval: interval().optional(),
      format: format(),
    }),
    hasCsv: true,
    limits: [`Buckets: ${figure(MAX_BUCKETS)}`],
    response: { 200: priceHistoryAnswer },
    async handler({ input: { query }, served, request }) {
      const { token_address: token, start_time: start, end_time: end = new Date(now()) } = query;
      const { interval: each = '1 hour' } = query;
      if (start > end) throw invalidInput({ start_time: ['Must not be later than end_time.'] });
      const window = {
        token,
        interval: each,
        start: bucketStart(each, start.getTime()),
        end: nextBucketStart(each, end.getTime()) - 1,
      };
      const clickhouse = clickhouseFor(request);
      const found = await candles(clickhouse, served, window, MAX_BUCKETS + 1);
      const next = found[MAX_BUCKETS];
      const begins = ({ hourMs }: Candle): string => iso(bucketStart(each, hourMs));
      const data = found.slice(0, MAX_BUCKETS).map((candle) => ({
        timestamp: begins(candle),
        avg_price: candle.mean,
        min_price: candle.low,
        max_price: candle.high,
        open_price: candle.open,
        close_price: candle.close,
      }));
      return {
        status: 200,
        body: {
          success: true as const,
          count: data.length,
          token_address: token,
          interval: each,
          start_time: start.toISOString(),
          end_time: end.toISOString(),
          ...(next === undefined ? {} : { next_start_time: begins(next) }),
          data,
        },
      };
    },
  });
}
