import { z } from 'zod';

import { countOf, sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { felt, uint } from '../../schemas/messages/common.ts';

/** Read side of the metadata of NFTs. `schema` is the served build's: `served.schema('nft-metadata')`. */

export interface Nft {
  readonly token: Felt;
  /** Decimal. */
  readonly tokenId: string;
}

export const nftKey = ({ token, tokenId }: Nft): string => `${token}:${tokenId}`;

const COMMON = `token, token_id::text AS token_id, is_fetched, attempt_count, last_attempt_at, retry_at, reason,
  has_reverted, name`;
const LARGE = ['description', 'attributes', 'uri', 'image', 'external_url', 'animation_url'] as const;
const COLUMNS = [COMMON, ...LARGE].join(', ');

/**
 * Bytes of an NFT's metadata on a page; of larger metadata only short fields are shown. Links often contain the picture
 * itself, and anyone can send an account a hundred NFTs of a megabyte each.
 */
const MAX_LISTED = 98_304;
const SHORT = 8192;
const bytesOf = (column: string): string => `coalesce(octet_length(${column}::text), 0)`;
const LISTED_COLUMNS = [
  COMMON,
  ...LARGE.map((column) => {
    const isShown = `${LARGE.map(bytesOf).join(' + ')} <= ${MAX_LISTED} OR ${bytesOf(column)} <= ${SHORT}`;
    return `CASE WHEN ${isShown} THEN ${column} ${column === 'attributes' ? "ELSE '[]' " : ''}END AS ${column}`;
  }),
].join(', ');

const row = z
  .object({
    token: felt,
    token_id: uint,
    is_fetched: z.boolean(),
    attempt_count: z.number(),
    last_attempt_at: z.number(),
    retry_at: z.number().nullable(),
    reason: z.string().nullable(),
    has_reverted: z.boolean(),
    uri: z.string().nullable(),
    name: z.string().nullable(),
    description: z.string().nullable(),
    image: z.string().nullable(),
    external_url: z.string().nullable(),
    animation_url: z.string().nullable(),
    attributes: z.array(z.object({ trait_type: z.string(), value: z.string() })),
  })
  .transform(({ token_id: tokenId, ...rest }) => ({ tokenId, ...rest }));

/** Times are unix milliseconds. */
export type NftMetadataRow = z.infer<typeof row>;

/**
 * The metadata of these NFTs, by `nftKey`; NFTs without an attempt are missing.
 *
 * @param options.isListed fields that are too large for a page are null, or an empty list
 */
export async function metadataOf(
  db: Sql,
  schema: string,
  nfts: readonly Nft[],
  { isListed = false }: { readonly isListed?: boolean } = {},
): Promise<ReadonlyMap<string, NftMetadataRow>> {
  if (nfts.length === 0) return new Map();
  const rows = await sqlRows(
    db,
    row,
    `SELECT ${isListed ? LISTED_COLUMNS : COLUMNS} FROM ${schema}.nft_metadata
     JOIN unnest($1::text[], $2::numeric[]) AS asked (token, token_id) USING (token, token_id)`,
    [nfts.map(({ token }) => token), nfts.map(({ tokenId }) => tokenId)],
  );
  return new Map(rows.map((one) => [nftKey(one), one]));
}

export async function countFetched(db: Sql, schema: string, token: Felt): Promise<number> {
  const sql = `SELECT count(*) AS n FROM ${schema}.nft_metadata WHERE token = $1 AND is_fetched`;
  return await countOf(db, sql, [token]);
}

/** The NFTs of a contract with fetched metadata, by id; fields too large for a page are null, or an empty list. */
export async function fetchedOf(
  db: Sql,
  schema: string,
  token: Felt,
  page: { offset: number; limit: number },
): Promise<NftMetadataRow[]> {
  return await sqlRows(
    db,
    row,
    `SELECT ${LISTED_COLUMNS} FROM ${schema}.nft_metadata WHERE token = $1 AND is_fetched
     ORDER BY nft_metadata.token_id LIMIT $2 OFFSET $3`,
    [token, page.limit, page.offset],
  );
}
