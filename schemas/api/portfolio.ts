import { z } from 'zod';

import { isoTimestamp } from './common.ts';
import { canonicalHex, uintString } from './values.ts';

const success = z.literal(true);
const totals = {
  total_usd: z.number().meta({ description: 'Sum over holdings with a price, in US dollars' }),
  tracked_total_usd: z.number(),
  holdings_count: z.int().min(0),
  untracked_count: z.int().min(0).meta({ description: 'Number of holdings without a price' }),
};

export const portfolioHolding = z
  .object({
    token_address: canonicalHex,
    balance: uintString,
    balance_usd: z.number().nullable(),
    token_price_usd: z.number().nullable(),
    symbol: z.string().nullable(),
    name: z.string().nullable(),
    logo: z.string().nullable(),
    decimals: z.int().min(0).max(255),
    is_erc20: z.boolean(),
    is_erc721: z.boolean(),
    is_erc1155: z.boolean(),
    verified: z.boolean(),
    common: z.boolean(),
    public: z.boolean(),
    is_hidden: z.boolean().meta({ description: 'Hide unless the user requests it' }),
  })
  .meta({ id: 'PortfolioHolding' });
export type PortfolioHoldingData = z.input<typeof portfolioHolding>;

export const portfolioAnswer = z.object({
  success,
  data: z
    .object({
      account_address: canonicalHex,
      as_of: isoTimestamp,
      ...totals,
      holdings: z.array(portfolioHolding),
    })
    .meta({ id: 'Portfolio' }),
  complete: z.literal(false).optional().meta({
    description:
      'Present if the index does not reach back to the first block or a balance is unknown; unknown balances are omitted',
  }),
});

export const portfolioPoint = z.object({ timestamp: isoTimestamp, ...totals }).meta({ id: 'PortfolioPoint' });
export type PortfolioPointData = z.input<typeof portfolioPoint>;

export const portfolioHistoryAnswer = z.object({
  success,
  count: z.int().min(0),
  account_address: canonicalHex,
  interval: z.string(),
  start_time: isoTimestamp,
  end_time: isoTimestamp,
  next_start_time: isoTimestamp.optional().meta({
    description: 'Present if there are more points: the `start_time` of the next request',
  }),
  data: z.array(portfolioPoint),
  complete: z.literal(false).optional().meta({
    description: 'Present if the portfolio at a point may be incomplete',
  }),
  complete_from: isoTimestamp.nullable().optional().meta({
    description:
      'Present if points with unknown balances are omitted: the first point from which none is omitted; null if the last point is omitted',
  }),
});
