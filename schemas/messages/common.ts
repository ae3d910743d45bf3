import { z } from 'zod';

import { isFelt } from '../felt.ts';
import type { Felt } from '../felt.ts';

/** Border schemas shared by the messages of every topic. */
export const felt = z.custom<Felt>(
  (value) => typeof value === 'string' && isFelt(value),
  'not a canonical felt',
);
/** An unsigned integer below 2^256 as a decimal string. */
export const uint = z.string().regex(/^(0|[1-9][0-9]{0,77})$/);
export const height = z.int().min(0).max(0xffff_fffe);
/** Unix seconds. */
export const unixSeconds = z.int().min(0);
/** Unix milliseconds. */
export const unixMillis = z.int().min(0);

/** What a contract turned out to be; `unknown` means that the chain has answered and it cannot be told. */
export const tokenStandards = ['erc20', 'erc721', 'erc1155', 'unknown'] as const;
export const tokenStandard = z.enum(tokenStandards);
export type TokenStandard = z.infer<typeof tokenStandard>;
