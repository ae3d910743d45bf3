import { z } from 'zod';

import { unixMillis } from './common.ts';

const ad = { v: z.literal(1), ad_id: z.int(), observed_at: unixMillis };

export const adsMessage = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ad.shown'), ...ad }),
  z.object({ type: z.literal('ad.clicked'), ...ad }),
]);
