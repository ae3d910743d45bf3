import { z } from 'zod';

import { felt, uint, unixMillis } from './common.ts';

const subject = { v: z.literal(1), token: felt, token_id: uint };

export const nftMessage = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('nft.metadata_fetched'),
    ...subject,
    /** The URI that the contract gave. */
    uri: z.string(),
    name: z.string().nullable(),
    description: z.string().nullable(),
    image: z.string().nullable(),
    /** As in the document, whatever its form. */
    attributes: z.array(z.unknown()),
    observed_at: unixMillis,
  }),
  z.object({
    type: z.literal('nft.metadata_failed'),
    ...subject,
    /** The chain's own reason where the contract reverted. */
    reason: z.string(),
    /** 1 for the first try. */
    attempt: z.int().positive(),
    observed_at: unixMillis,
  }),
]);
