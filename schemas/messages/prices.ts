import { z } from 'zod';

import { felt, unixMillis } from './common.ts';

/** As many as a price has at most, which has 15 digits before the point at most. */
export const PRICE_DECIMALS = 41;
/** US dollars for one whole token, as a decimal string. */
export const price = z.string().regex(new RegExp(`^(0|[1-9][0-9]{0,14})(\\.[0-9]{1,${PRICE_DECIMALS}})?$`));

export const pricesMessage = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('price.observed'),
    v: z.literal(1),
    token: felt,
    price,
    /** Where it came from. */
    source: z.string(),
    /** How sure the source is of it, from 0 to 1; null where it does not say. */
    confidence: z
      .string()
      .regex(/^(0|[1-9][0-9]*)(\.[0-9]+)?$/)
      .nullable(),
    /** The source's own time of the price. */
    observed_at: unixMillis,
    /** Of the newest request that this answers; absent where nothing had asked. */
    requested_at: unixMillis.optional(),
  }),
  /** Something asked for a price, and nothing new is known: the last one stands, where there is one. */
  z.object({
    type: z.literal('price.unchanged'),
    v: z.literal(1),
    token: felt,
    source: z.string(),
    /** `repeated`: the source said the same again, or had only just been asked; else why what it said was not believed. */
    reason: z.string(),
    /** When it was read. */
    observed_at: unixMillis,
    /** Of the newest request that this answers. */
    requested_at: unixMillis,
  }),
]);
export type PricesMessage = z.infer<typeof pricesMessage>;
