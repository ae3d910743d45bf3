import { z } from 'zod';

import { isFelt } from '../felt.ts';
import type { Felt } from '../felt.ts';
import { isStorable } from '../text.ts';

/** Text that PostgreSQL can store, also inside JSON. A command that it cannot store would halt all commands after it. */
export const storableText = z
  .string()
  .refine(isStorable, 'must not contain NUL characters or unpaired surrogates');
export const felt = z.custom<Felt>(isFelt, 'not a canonical felt');
export const UINT = /^(0|[1-9][0-9]{0,77})$/;
/** An unsigned integer below 2^256 as a decimal string. */
export const uint = z.string().regex(UINT);
export const height = z.int().min(0).max(0xffff_fffe);
/** Unix seconds. */
export const unixSeconds = z.int().min(0);
/** Unix milliseconds. */
export const unixMillis = z.int().min(0);

/** A contract's classification; `unknown`: the chain answered, but its answers do not identify a standard. */
export const tokenStandards = ['erc20', 'erc721', 'erc1155', 'unknown'] as const;
export const tokenStandard = z.enum(tokenStandards);
export type TokenStandard = z.infer<typeof tokenStandard>;
export const isNft = (standard: TokenStandard | null): boolean =>
  standard === 'erc721' || standard === 'erc1155';
