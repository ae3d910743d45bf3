import { z } from 'zod';

import { felt, unixMillis } from './common.ts';

/** Maximum of decimal places of a price; it has at most 15 digits before the point. */
export const PRICE_DECIMALS = 41;
/** US dollars for one whole token, as a decimal string. */
export const price = z.string().regex(new RegExp(`^(0|[1-9][0-9]{0,14})(\\.[0-9]{1,${PRICE_DECIMALS}})?$`));

export const pricesMessage = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('price.observed'),
    v: z.literal(1),
    token: felt,
    price,
    /** Name of the feed. */
    source: z.string(),
    /** The feed's confidence, from 0 to 1; null if it gives none. */
    confidence: z
      .string()
      .regex(/^(0|[1-9][0-9]*)(\.[0-9]+)?$/)
      .nullable(),
    /** Time of the price, as given by the feed. */
    observed_at: unixMillis,
    /** `requested_at` of the newest request that this answers; absent without one. */
    requested_at: unixMillis.optional(),
    /** Of a past price, published late: it crosses no threshold of a webhook. */
    cause: z.literal('backfill').optional(),
  }),
  /** Answers a request without a new price: the last price, if any, stays valid. */
  z.object({
    type: z.literal('price.unchanged'),
    v: z.literal(1),
    token: felt,
    source: z.string(),
    /** `repeated`: the feed gave the same price, or was asked moments ago; else why its price was refused. */
    reason: z.string(),
    /** When the feed was read. */
    observed_at: unixMillis,
    /** `requested_at` of the newest request that this answers. */
    requested_at: unixMillis,
  }),
]);
export type PricesMessage = z.infer<typeof pricesMessage>;
