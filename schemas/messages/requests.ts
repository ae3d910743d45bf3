import { z } from 'zod';

import { felt, uint, unixMillis } from './common.ts';

const request = { v: z.literal(1), requested_at: unixMillis };

/** Refreshes that the API asks of the observers. Not the truth: a lost one is asked again. */
export const requestsMessage = z.discriminatedUnion('type', [
  z.object({ type: z.literal('balance.requested'), ...request, account: felt, token: felt }),
  z.object({ type: z.literal('price.requested'), ...request, token: felt }),
  z.object({ type: z.literal('nft.metadata_requested'), ...request, token: felt, token_id: uint }),
]);
