import { z } from 'zod';

import { unixMillis, unixSeconds } from './common.ts';

export const usageMessage = z.discriminatedUnion('type', [
  /** Calls of a key in an hour, counted by one API process since its previous message about them. */
  z.object({
    type: z.literal('usage.counted'),
    v: z.literal(1),
    key_id: z.int().min(0),
    /** Start of the hour in which the calls were made. */
    hour: unixSeconds,
    calls: z.int().positive().max(0xffff_ffff),
    /** Calls answered with a status below 300. */
    successful: z.int().min(0).max(0xffff_ffff),
    last_used_at: unixMillis,
    counted_at: unixMillis,
  }),
]);
export type UsageMessage = z.infer<typeof usageMessage>;
