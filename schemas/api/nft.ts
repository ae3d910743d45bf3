import { z } from 'zod';

import { errorBody, isoTimestamp } from './common.ts';
import { canonicalHex, uintString } from './values.ts';

const success = z.literal(true);
const tokenIdText = uintString.meta({ description: 'Decimal', example: '77' });
const text = z.string().nullable();
const page = { page: z.int().min(1), page_size: z.int().min(1), count: z.int().min(0) };
const attribute = z.object({ trait_type: z.string(), value: z.string() }).meta({ id: 'NftAttribute' });

const shown = {
  name: text,
  description: text,
  image: text.meta({
    description:
      'An https, http or data:image URL; ipfs:// is resolved to a gateway. Display it in an <img>, as an SVG may contain scripts',
  }),
  external_url: text,
  animation_url: text,
  attributes: z.array(attribute),
  metadata_uri: text.meta({ description: 'As returned by the contract' }),
};

const collectionRow = z.object({ nft_token_id: tokenIdText, ...shown }).meta({ id: 'NftOfCollection' });
export type NftOfCollection = z.input<typeof collectionRow>;

export const nftMetadataAnswer = z.object({
  success,
  data: z
    .object({ token_address: canonicalHex, nft_token_id: tokenIdText, ...shown })
    .meta({ id: 'NftMetadata' }),
});

/** The body of a 404 where the metadata could not be fetched. */
export const nftMetadataUnavailableBody = z
  .union([
    errorBody.extend({
      retry_at: isoTimestamp.meta({ description: 'From then on, a request fetches it again' }),
    }),
    errorBody.extend({ permanent: z.literal(true).meta({ description: 'It is not fetched again' }) }),
  ])
  .meta({ id: 'NftMetadataUnavailable' });

export const nftCollectionAnswer = z.object({
  success,
  token_address: canonicalHex,
  ...page,
  data: z.array(collectionRow),
});

export const nftOwnerAnswer = z.object({
  success,
  data: z
    .object({
      token_address: canonicalHex,
      nft_token_id: tokenIdText,
      owner_address: canonicalHex.meta({ description: 'The zero address if burned' }),
      last_transfer_block: z.int().min(0),
      last_transfer_timestamp: isoTimestamp,
      last_transfer_txhash: canonicalHex,
    })
    .meta({ id: 'NftOwner' }),
});

const ownedNft = z
  .object({
    token_address: canonicalHex,
    nft_token_id: tokenIdText,
    last_transfer_block: z.int().min(0),
    collection_name: text,
    collection_symbol: text,
    collection_logo: text,
    is_erc721: z.boolean(),
    is_erc1155: z.boolean(),
    // These five are present if fetched and not excluded by `include_metadata`.
    name: text.optional(),
    image: text.optional(),
    description: text.optional(),
    attributes: z.array(attribute).optional(),
    metadata_uri: text.optional(),
  })
  .meta({ id: 'OwnedNft' });
export type OwnedNft = z.input<typeof ownedNft>;

export const ownedNftsAnswer = z.object({ success, ...page, data: z.array(ownedNft) });
