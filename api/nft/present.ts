import type { HeldNft } from '../../projections/nft-holdings/queries.ts';
import type { NftMetadataRow } from '../../projections/nft-metadata/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import type { NftOfCollection, OwnedNft } from '../../schemas/api/nft.ts';
import { throughGateway } from '../../schemas/nft/uris.ts';

/** What lists leave out of large NFTs (`projections/nft-metadata`). */
export const TRUNCATION_NOTE =
  'If the metadata of an NFT exceeds 96 KiB, its links and texts above 8 KiB are null and its attributes above 8 KiB are an empty list; `/api/nft/metadata/` returns them in full.';

/** @param gateway base URL of the IPFS gateway in answers */
export function presentMetadata(row: NftMetadataRow, gateway: string): NftOfCollection {
  const link = (uri: string | null): string | null => (uri === null ? null : throughGateway(uri, gateway));
  return {
    nft_token_id: row.tokenId,
    name: row.name,
    description: row.description,
    image: link(row.image),
    external_url: link(row.external_url),
    animation_url: link(row.animation_url),
    attributes: row.attributes,
    metadata_uri: row.uri,
  };
}

/** A holding, with its metadata if given and fetched. */
export function presentOwned(
  held: HeldNft,
  collection: TokenRow | undefined,
  metadata: NftMetadataRow | undefined,
  gateway: string,
): OwnedNft {
  const own = {
    token_address: held.token,
    nft_token_id: held.tokenId,
    last_transfer_block: held.block,
    collection_name: collection?.name ?? null,
    collection_symbol: collection?.symbol ?? null,
    collection_logo: collection?.logo ?? null,
    is_erc721: held.kind === 'erc721',
    is_erc1155: held.kind === 'erc1155',
  };
  if (metadata?.is_fetched !== true) return own;
  const { name, image, description, attributes, metadata_uri } = presentMetadata(metadata, gateway);
  return { ...own, name, image, description, attributes, metadata_uri };
}
