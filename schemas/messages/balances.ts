import { z } from 'zod';

import { felt, height, uint, unixMillis } from './common.ts';

export const balancesMessage = z.discriminatedUnion('type', [
  /** A balance read from the chain at a block: an anchor, good while that hash is the indexed one. */
  z.object({
    type: z.literal('balance.observed'),
    v: z.literal(1),
    account: felt,
    token: felt,
    /** Raw integer, no decimals applied. */
    balance: uint,
    block: height,
    block_hash: felt,
    observed_at: unixMillis,
  }),
]);
