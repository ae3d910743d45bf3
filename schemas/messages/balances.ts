import { z } from 'zod';

import { felt, height, uint, unixMillis } from './common.ts';

const read = {
  v: z.literal(1),
  account: felt,
  token: felt,
  block: height,
  block_hash: felt,
  observed_at: unixMillis,
  /** `requested_at` of the newest request that this answers. */
  requested_at: unixMillis,
  /** Height accepted on L1 when the balance was read; anchors at or below it can no longer be reverted. */
  l1_height: height.nullable(),
};

export const balancesMessage = z.discriminatedUnion('type', [
  /** A balance read from the chain at a block: an anchor, valid while that hash is the indexed one. */
  z.object({
    type: z.literal('balance.observed'),
    ...read,
    /** Raw integer, no decimals applied. */
    balance: uint,
  }),
  /** The contract has no readable balance: it does not exist, reverts, or answers no number. */
  z.object({ type: z.literal('balance.refused'), ...read, reason: z.string() }),
]);
export type BalancesMessage = z.infer<typeof balancesMessage>;
