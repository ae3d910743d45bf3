import { z } from 'zod';

import { felt, uint, unixMillis } from './common.ts';

const attempted = {
  v: z.literal(1),
  token: felt,
  token_id: uint,
  /** When the attempt ended. */
  observed_at: unixMillis,
};

/** What a document says of a thing in its own words; null where it says nothing, or no text. */
const said = z.string().nullable();

export const nftMessage = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('nft.metadata_fetched'),
    ...attempted,
    /** As the contract gave it. */
    uri: z.string(),
    name: said,
    description: said,
    /** A URI of whatever scheme, as in the document: gateways come and go. */
    image: said,
    external_url: said,
    animation_url: said,
    attributes: z.array(z.object({ trait_type: z.string(), value: z.string() })),
  }),
  z.object({
    type: z.literal('nft.metadata_failed'),
    ...attempted,
    /** As the contract gave it; null where it gave none. */
    uri: z.string().nullable(),
    /** `reverted`: the contract itself refused, and `reason` is its own; else the way to the document was barred. */
    cause: z.enum(['reverted', 'unavailable']),
    reason: z.string(),
    /** Failures in a row, this one included. */
    attempt: z.int().positive(),
    /** Nobody tries before; null: nobody tries again. */
    retry_at: unixMillis.nullable(),
  }),
]);
export type NftMessage = z.infer<typeof nftMessage>;
