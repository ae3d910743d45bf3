import { z } from 'zod';

import { felt, unixMillis } from './common.ts';

export const pricesMessage = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('price.observed'),
    v: z.literal(1),
    token: felt,
    /** US dollars for one whole token, as a decimal string. */
    price: z.string().regex(/^(0|[1-9][0-9]*)(\.[0-9]+)?$/),
    /** Where it came from. */
    source: z.string(),
    /** Half the width of the source's confidence interval, in the price's unit; null where the source gives none. */
    confidence: z
      .string()
      .regex(/^(0|[1-9][0-9]*)(\.[0-9]+)?$/)
      .nullable(),
    /** The source's own time of the price. */
    observed_at: unixMillis,
  }),
]);
