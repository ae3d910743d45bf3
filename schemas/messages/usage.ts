import { z } from 'zod';

import { unixMillis, unixSeconds } from './common.ts';

export const usageMessage = z.discriminatedUnion('type', [
  /** Calls of one key, counted by one API process since its last such message. */
  z.object({
    type: z.literal('usage.counted'),
    v: z.literal(1),
    key_id: z.int(),
    /** Start of the hour in which the calls were made. */
    hour: unixSeconds,
    calls: z.int().positive(),
    counted_at: unixMillis,
  }),
]);
