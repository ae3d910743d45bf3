import { z } from 'zod';

import { felt, uint, unixMillis } from './common.ts';

const attempt = {
  v: z.literal(1),
  token: felt,
  token_id: uint,
  /** When the attempt ended. */
  observed_at: unixMillis,
};

/** A field of the metadata document, with the token id in place of `{id}`; null if absent or not a string. */
const documentField = z.string().nullable();

export const nftMessage = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('nft.metadata_fetched'),
    ...attempt,
    /** As the contract gave it. */
    uri: z.string(),
    name: documentField,
    description: documentField,
    /** A URI of any scheme, as in the document: gateways change, so it is resolved when served. */
    image: documentField,
    external_url: documentField,
    animation_url: documentField,
    attributes: z.array(z.object({ trait_type: z.string(), value: z.string() })),
  }),
  z.object({
    type: z.literal('nft.metadata_failed'),
    ...attempt,
    /** As the contract gave it; null if it gave none. */
    uri: z.string().nullable(),
    /** `reverted`: the contract's call reverted, and `reason` is its own; `unavailable`: the document could not be fetched. */
    cause: z.enum(['reverted', 'unavailable']),
    reason: z.string(),
    /** Consecutive failures, including this one. */
    attempt: z.int().positive(),
    /** Earliest time of the next attempt; null: given up. */
    retry_at: unixMillis.nullable(),
  }),
]);
export type NftMessage = z.infer<typeof nftMessage>;
