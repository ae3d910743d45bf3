import { z } from 'zod';

import { felt, height, uint, unixMillis } from './common.ts';

const read = {
  v: z.literal(1),
  account: felt,
  token: felt,
  block: height,
  block_hash: felt,
  observed_at: unixMillis,
  /** Of the newest request that this answers. */
  requested_at: unixMillis,
  /** The height accepted on L1 as the observer knew it: which of the earlier anchors can no longer be reverted. */
  l1_height: height.nullable(),
};

export const balancesMessage = z.discriminatedUnion('type', [
  /** A balance read from the chain at a block: an anchor, good while that hash is the indexed one. */
  z.object({
    type: z.literal('balance.observed'),
    ...read,
    /** Raw integer, no decimals applied. */
    balance: uint,
  }),
  /** The chain has answered that this contract tells no balance: none is there, it reverts, or says no number. */
  z.object({ type: z.literal('balance.refused'), ...read, reason: z.string() }),
]);
export type BalancesMessage = z.infer<typeof balancesMessage>;
