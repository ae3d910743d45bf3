import { z } from 'zod';

import { felt, height, tokenStandard, unixMillis } from './common.ts';

export const tokensMessage = z.discriminatedUnion('type', [
  /** What the chain says of a token. `null`: the contract has no such answer. Texts are as the chain gave them. */
  z.object({
    type: z.literal('token.described'),
    v: z.literal(1),
    token: felt,
    standard: tokenStandard,
    class_hash: felt.nullable(),
    name: z.string().nullable(),
    symbol: z.string().nullable(),
    decimals: z.int().min(0).max(255).nullable(),
    /** First block in which the indexer met the token. */
    block: height,
    observed_at: unixMillis,
  }),
  /** What a curated list says of a token. Absent fields keep their value. */
  z.object({
    type: z.literal('token.listed'),
    v: z.literal(1),
    token: felt,
    verified: z.boolean().optional(),
    common: z.boolean().optional(),
    public: z.boolean().optional(),
    hidden: z.boolean().optional(),
    logo: z.string().nullable().optional(),
    observed_at: unixMillis,
  }),
]);
export type TokensMessage = z.infer<typeof tokensMessage>;
