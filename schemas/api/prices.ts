import { z } from 'zod';

import { isoTimestamp } from './common.ts';
import { canonicalHex } from './values.ts';

const success = z.literal(true);
const priceUsd = z.number().min(0).meta({ description: 'US dollars for one whole token; 0 when untracked' });

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
        price_updated_at: isoTimestamp.nullable().meta({ description: 'null when untracked' }),
      })
      .meta({ id: 'Price' }),
  ),
});
