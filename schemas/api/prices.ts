import { z } from 'zod';

import { isoTimestamp } from './common.ts';
import { canonicalHex } from './values.ts';

const success = z.literal(true);
const priceUsd = z.number().min(0).meta({ description: 'US dollars per whole token; 0 if untracked' });

export const priceAnswer = z.object({
  success,
  data: z.object({ token_address: canonicalHex, price_usd: priceUsd, force_refresh: z.boolean() }),
});

export const pricesAnswer = z.object({
  success,
  data: z.array(
    z
      .object({
        token_address: canonicalHex,
        price_usd: priceUsd,
        price_updated_at: isoTimestamp.nullable().meta({ description: 'null if untracked' }),
      })
      .meta({ id: 'Price' }),
  ),
});

export const priceAtAnswer = z.object({
  success,
  data: z.object({ token_address: canonicalHex, price_usd: priceUsd, at_time: isoTimestamp }),
});

const usd = z.string().meta({ description: 'US dollars per whole token, as a decimal', example: '0.35' });

export const priceHistoryAnswer = z.object({
  success,
  count: z.int().min(0),
  token_address: canonicalHex,
  interval: z.string(),
  start_time: isoTimestamp,
  end_time: isoTimestamp,
  next_start_time: isoTimestamp.optional().meta({
    description: 'Present if there are more buckets: the `start_time` of the next request',
  }),
  data: z.array(
    z
      .object({
        timestamp: isoTimestamp.meta({ description: 'Start of the bucket' }),
        avg_price: usd,
        min_price: usd,
        max_price: usd,
        open_price: usd,
        close_price: usd,
      })
      .meta({ id: 'PricePoint' }),
  ),
});
