import { z } from 'zod';

import { felt, height, tokenStandard, unixMillis } from './common.ts';

export const tokensMessage = z.discriminatedUnion('type', [
  /** Token metadata read from the chain. `null`: the contract does not answer. Texts are as the chain gave them. */
  z.object({
    type: z.literal('token.described'),
    v: z.literal(1),
    token: felt,
    standard: tokenStandard,
    class_hash: felt.nullable(),
    name: z.string().nullable(),
    symbol: z.string().nullable(),
    decimals: z.int().min(0).max(255).nullable(),
    /** First block in which the indexer saw the token. */
    block: height,
    /** Of a description that only a repair led to: no webhook is notified of it. */
    cause: z.literal('repair').optional(),
    observed_at: unixMillis,
  }),
  /** Properties of a token in a curated list. Absent fields keep their value. */
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
