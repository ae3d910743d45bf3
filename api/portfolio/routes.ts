import { z } from 'zod';

import { portfolioAnswer, portfolioHistoryAnswer } from '../../schemas/api/portfolio.ts';
import type { PortfolioHoldingData } from '../../schemas/api/portfolio.ts';
import type { BalanceDepsFor } from '../balances/reading.ts';
import { decimalText } from '../../schemas/money.ts';
import { invalidInput } from '../http/errors.ts';
import { boundaries } from '../http/intervals.ts';
import { address, format, interval, timestamp } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { MAX_BALANCES, TOKENS_LIMIT } from '../balances/account.ts';
import { readLimit, figure } from '../http/stated-limits.ts';
import { iso, isoOrNull } from '../http/times.ts';
import { decimalsOfToken } from '../tokens/present.ts';
import { createTotals } from './holdings.ts';
import type { Holding } from './holdings.ts';
import { portfolioAt, portfolioHistory } from './portfolio.ts';

export interface PortfolioRouteDeps {
  readonly reading: BalanceDepsFor;
}

const MAX_POINTS = 5000;

const common = { method: 'GET', tag: 'Portfolio', auth: 'key', asOf: true } as const;

export function portfolioRoutes(deps: PortfolioRouteDeps): Route[] {
  return [portfolioRoute(deps), historyRoute(deps)];
}

function portfolioRoute({ reading }: PortfolioRouteDeps): Route {
  return defineRoute({
    id: 'getPortfolio',
    ...common,
    path: '/api/portfolio/',
    summary: 'List the holdings of an account and their value',
    description: [
      'Uses the balances after the newest block at or before `at_time`, and the newest price of each token at or before it.',
      'Sorted by value, largest first; holdings without a price come last. Unknown balances are left out, and read from the',
      'chain after the response.',
    ].join(' '),
    query: z.object({
      account_address: address(),
      at_time: timestamp('ISO 8601, UTC by default; now when absent or in the future').optional(),
    }),
    limits: [readLimit('account'), TOKENS_LIMIT],
    response: { 200: portfolioAnswer },
    async handler({ input: { query }, served, request, asOf, pool }) {
      const { account_address: account, at_time: atTime } = query;
      if (asOf !== null && atTime !== undefined)
        throw invalidInput({ at_time: ['Give at_time or as_of_block, not both.'] });
      const deps = reading(served, { request, asOf, pool }, 'account');
      const present = deps.now();
      const time = atTime === undefined || atTime.getTime() >= present ? null : atTime.getTime();
      const { holdings, isComplete } = await portfolioAt(deps, account, time);
      const totals = createTotals();
      for (const { value } of holdings) totals.add(value?.usd ?? null);
      return {
        status: 200,
        body: {
          success: true as const,
          data: {
            account_address: account,
            as_of: iso(time ?? present),
            ...totals.figures(),
            holdings: holdings.map(presentHolding),
          },
          ...(isComplete ? {} : { complete: false as const }),
        },
      };
    },
  });
}

function historyRoute({ reading }: PortfolioRouteDeps): Route {
  return defineRoute({
    id: 'getPortfolioHistory',
    ...common,
    path: '/api/portfolio-history/',
    summary: 'Get the value of an account over time',
    description: [
      'Returns one point at the start of each hour, day, week or month (UTC; weeks begin on Monday) between the two times,',
      'inclusive, with the figures of `/api/portfolio/` for that `at_time`. Points with an unknown balance are left out; from',
      '`complete_from` on, none is. A response has at most 5,000 points; if there are more, continue with `next_start_time`.',
    ].join(' '),
    query: z.object({
      account_address: address(),
      start_time: timestamp('ISO 8601, inclusive, UTC by default'),
      end_time: timestamp('ISO 8601, inclusive; now when absent').optional(),
      interval: interval().optional(),
      format: format(),
    }),
    hasCsv: true,
    limits: [
      readLimit('account'),
      TOKENS_LIMIT,
      `Points: ${figure(MAX_POINTS)}`,
      `Tokens times points: ${figure(MAX_BALANCES)} (400)`,
    ],
    response: { 200: portfolioHistoryAnswer },
    async handler({ input: { query }, served, request, asOf, pool }) {
      const deps = reading(served, { request, asOf, pool }, 'account');
      const present = deps.now();
      const { account_address: account, start_time: start, end_time: end = new Date(present) } = query;
      const { interval: each = '1 hour' } = query;
      if (start > end) throw invalidInput({ start_time: ['Must not be later than end_time.'] });
      const last = Math.min(end.getTime(), present);
      const starts = boundaries(each, start.getTime(), last, MAX_POINTS + 1);
      const [times, next] = [starts.slice(0, MAX_POINTS), starts[MAX_POINTS]];
      const { data, isComplete, completeFrom } = await portfolioHistory(deps, account, times);
      return {
        status: 200,
        body: {
          success: true as const,
          count: data.length,
          account_address: account,
          interval: each,
          start_time: start.toISOString(),
          end_time: end.toISOString(),
          ...(next === undefined ? {} : { next_start_time: iso(next) }),
          data: [...data],
          ...(isComplete ? {} : { complete: false as const }),
          ...(completeFrom === undefined ? {} : { complete_from: isoOrNull(completeFrom) }),
        },
      };
    },
  });
}

function presentHolding({ address: of, token, balance, value }: Holding): PortfolioHoldingData {
  const standard = token?.standard ?? null;
  return {
    token_address: of,
    balance: balance.toString(),
    balance_usd: value === null ? null : Number(decimalText(value.usd)),
    token_price_usd: value === null ? null : Number(value.price),
    symbol: token?.symbol ?? null,
    name: token?.name ?? null,
    logo: token?.logo ?? null,
    decimals: decimalsOfToken(token),
    is_erc20: standard === 'erc20',
    is_erc721: standard === 'erc721',
    is_erc1155: standard === 'erc1155',
    verified: token?.verified ?? false,
    common: token?.common ?? false,
    public: token?.public ?? false,
    is_hidden: token?.hidden ?? false,
  };
}
