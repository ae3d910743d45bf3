import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import { countFetched, fetchedOf, metadataOf, nftKey } from '../../projections/nft-metadata/queries.ts';
import type { Nft, NftMetadataRow } from '../../projections/nft-metadata/queries.ts';
import { nftCollectionAnswer, nftMetadataAnswer, nftMetadataUnavailableBody } from '../../schemas/api/nft.ts';
import { BY_TIME } from '../http/as-of.ts';
import { resolvePage } from '../http/envelope.ts';
import { HttpError, unavailable } from '../http/errors.ts';
import { address, page, tokenId } from '../http/params.ts';
import { refreshCaller } from '../commands/refresh.ts';
import type { RefreshBus } from '../commands/refresh.ts';
import { defineRoute } from '../http/route.ts';
import type { RequestInfo, Route } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { iso } from '../http/times.ts';
import { nftPageSize } from './ownership.ts';
import { TRUNCATION_NOTE, presentMetadata } from './present.ts';

export interface NftMetadataDeps {
  readonly refreshes: RefreshBus;
  /** Base URL of the IPFS gateway in answers. */
  readonly ipfsGateway: string;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** The fetch continues meanwhile. */
const RETRY_AFTER_SECONDS = 5;

const common = { method: 'GET', tag: 'NFTs', auth: 'key', asOf: BY_TIME } as const;

export function nftMetadataRoutes(deps: NftMetadataDeps): Route[] {
  return [metadataRoute(deps), collectionRoute(deps)];
}

/** An NFT's metadata, fetched if it was not yet; null while the fetch takes longer than a client waits. */
async function settledMetadata(
  { refreshes, now }: NftMetadataDeps,
  { pool, served }: { readonly pool: Sql; readonly served: ServedBuilds },
  nft: Nft,
  info: RequestInfo,
): Promise<NftMetadataRow | null> {
  const read = async (): Promise<NftMetadataRow | null> => {
    const row = (await metadataOf(pool, served.schema('nft-metadata'), [nft])).get(nftKey(nft));
    // Otherwise no fetch is due: fetched, failed for good, or failed recently.
    const isDue = row === undefined || (!row.is_fetched && row.retry_at !== null && row.retry_at <= now());
    return isDue ? null : row;
  };
  const request = {
    type: 'nft.metadata_requested' as const,
    token: nft.token,
    token_id: nft.tokenId,
    caller: refreshCaller(info),
  };
  return (await read()) ?? (await refreshes.refresh([request], read, info.signal));
}

function metadataRoute(deps: NftMetadataDeps): Route {
  return defineRoute({
    id: 'getNftMetadata',
    ...common,
    path: '/api/nft/metadata/',
    summary: 'Get the metadata of an NFT',
    description: [
      'Metadata that was never fetched is fetched now; if that takes longer than 8 s, the response is 503 with `Retry-After`.',
      'If the fetch failed, the response is 404 with `retry_at`: a request after that time fetches again. After `NFT_ATTEMPTS`',
      "(default 10) failures, it is 404 with `permanent: true`. If the call to the contract reverted, `detail` is the contract's reason.",
    ].join(' '),
    query: z.object({ token_address: address(), nft_token_id: tokenId() }),
    response: { 200: nftMetadataAnswer },
    errors: [404, 503],
    errorBodies: { 404: nftMetadataUnavailableBody },
    async handler({ input: { query }, served, request, pool }) {
      const { token_address: token, nft_token_id: id } = query;
      const row = await settledMetadata(deps, { pool, served }, { token, tokenId: id.toString() }, request);
      if (row === null) {
        throw unavailable('metadata_pending', 'The metadata is being fetched.', RETRY_AFTER_SECONDS);
      }
      if (!row.is_fetched) throw missing(row);
      const data = { token_address: token, ...presentMetadata(row, deps.ipfsGateway) };
      return { status: 200, body: { success: true as const, data } };
    },
  });
}

function collectionRoute({ ipfsGateway }: NftMetadataDeps): Route {
  return defineRoute({
    id: 'getNftCollection',
    ...common,
    path: '/api/nft/collection/',
    summary: 'List the NFTs of a contract',
    description: `Lists the NFTs whose metadata was fetched, sorted by id, and starts no fetch. ${TRUNCATION_NOTE}`,
    query: z.object({ token_address: address(), page: page(), page_size: nftPageSize() }),
    response: { 200: nftCollectionAnswer },
    isCacheable: true,
    async handler({ input: { query }, served, pool }) {
      const { token_address: token } = query;
      const schema = served.schema('nft-metadata');
      const count = await countFetched(pool, schema, token);
      const found = resolvePage(query.page, query.page_size, count);
      const rows = await fetchedOf(pool, schema, token, found);
      return {
        status: 200,
        body: {
          success: true as const,
          token_address: token,
          page: found.number,
          page_size: found.limit,
          count,
          data: rows.map((row) => presentMetadata(row, ipfsGateway)),
        },
      };
    },
  });
}

/** The 404 of a failed fetch (decisions 40 and 93). */
function missing({ retry_at: retryAt, has_reverted: hasReverted, reason }: NftMetadataRow): HttpError {
  const detail = hasReverted && reason !== null && reason !== '' ? reason : 'Metadata unavailable.';
  const extra = retryAt === null ? { permanent: true } : { retry_at: iso(retryAt) };
  return new HttpError(404, 'not_found', detail, { extra });
}
