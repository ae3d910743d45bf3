import { z } from 'zod';

import { envelopeOf, isoTimestamp } from './common.ts';
import { canonicalHex } from './values.ts';

export const tokenAnswer = z
  .object({
    address: canonicalHex,
    symbol: z.string().meta({ description: 'As returned by the contract; empty if it has none' }),
    name: z.string().meta({ description: 'As returned by the contract; empty if it has none' }),
    decimals: z
      .int()
      .min(0)
      .max(255)
      .meta({ description: 'If the contract has none: 0 for erc721 and erc1155, else 18' }),
    logo: z.string().nullable(),
    current_price_usd: z.string().nullable().meta({ description: 'null if no price is known' }),
    price_updated_at: isoTimestamp.nullable(),
    verified: z.boolean(),
    common: z.boolean(),
    public: z.boolean(),
    hidden: z.boolean(),
    is_erc20: z.boolean(),
    is_erc721: z.boolean(),
    is_erc1155: z.boolean(),
  })
  .meta({ id: 'Token' });
export type TokenAnswer = z.infer<typeof tokenAnswer>;

export const tokenListAnswer = envelopeOf(tokenAnswer);
