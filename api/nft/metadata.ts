import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import { countFetched, fetchedOf, metadataOf, nftKey } from '../../projections/nft-metadata/queries.ts';
import type { Nft, NftMetadataRow } from '../../projections/nft-metadata/queries.ts';
import { nftCollectionAnswer, nftMetadataAnswer } from '../../schemas/api/nft.ts';
import { resolvePage } from '../http/envelope.ts';
import { HttpError, unavailable } from '../http/errors.ts';
import { address, page, tokenId } from '../http/params.ts';
import type { RefreshBus } from '../commands/refresh.ts';
import { defineRoute } from '../http/route.ts';
import type { Route, ServedBuilds } from '../http/route.ts';
import { iso } from '../http/times.ts';
import { nftPageSize } from './ownership.ts';
import { LISTED_WHOLE, presentMetadata } from './present.ts';

export interface NftMetadataDeps {
  /** May only SELECT. */
  readonly pool: Sql;
  readonly refreshes: RefreshBus;
  /** Where clients reach IPFS. */
  readonly ipfsGateway: string;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Who was not answered in time comes back after so long: the fetch goes on. */
const COME_BACK_SECONDS = 5;

export function nftMetadataRoutes({ pool, refreshes, ipfsGateway, now }: NftMetadataDeps): Route[] {
  const read = async (served: ServedBuilds, nft: Nft): Promise<NftMetadataRow | undefined> =>
    (await metadataOf(pool, served.schema('nft-metadata'), [nft])).get(nftKey(nft));

  /** Nothing is fetched now: it is there, or has failed so lately, or so often, that nobody is to try. */
  const isSettled = (row: NftMetadataRow): boolean =>
    row.is_fetched || row.retry_at === null || row.retry_at > now();

  const fetched = async (
    served: ServedBuilds,
    nft: Nft,
    signal: AbortSignal,
  ): Promise<NftMetadataRow | null> => {
    const known = await read(served, nft);
    if (known !== undefined && isSettled(known)) return known;
    const request = { type: 'nft.metadata_requested' as const, token: nft.token, token_id: nft.tokenId };
    return await refreshes.refresh(
      [request],
      async () => {
        const row = await read(served, nft);
        return row !== undefined && isSettled(row) ? row : null;
      },
      signal,
    );
  };

  const one = defineRoute({
    method: 'GET',
    path: '/api/nft/metadata/',
    summary: 'Metadata of an NFT',
    description: [
      'What was not fetched yet is fetched now: 503 with `Retry-After` where that takes longer than 8 s. Where it cannot be',
      'had, 404 with `retry_at`, before which nobody tries again; after ten failures with `permanent: true` instead.',
      'Where the contract itself refused, `detail` is its reason.',
    ].join(' '),
    tag: 'NFTs',
    auth: 'key',
    query: z.object({ token_address: address(), nft_token_id: tokenId() }),
    response: { 200: nftMetadataAnswer },
    errors: [404, 503],
    async handler({ input: { query }, served, request }) {
      const { token_address: token, nft_token_id: id } = query;
      const row = await fetched(served, { token, tokenId: id.toString() }, request.signal);
      if (row === null) {
        throw unavailable('metadata_pending', 'The metadata is being fetched.', COME_BACK_SECONDS);
      }
      if (!row.is_fetched) throw missing(row);
      const data = { token_address: token, ...presentMetadata(row, ipfsGateway) };
      return { status: 200, body: { success: true as const, data } };
    },
  });

  const collection = defineRoute({
    method: 'GET',
    path: '/api/nft/collection/',
    summary: 'NFTs of a contract',
    description: `Those whose metadata was fetched, by id. Nothing is fetched for it. ${LISTED_WHOLE}`,
    tag: 'NFTs',
    auth: 'key',
    query: z.object({ token_address: address(), page: page(), page_size: nftPageSize() }),
    response: { 200: nftCollectionAnswer },
    isCacheable: true,
    async handler({ input: { query }, served }) {
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

  return [one, collection];
}

/** Decisions 40 and 93. */
function missing({ retry_at: retryAt, has_reverted: hasReverted, reason }: NftMetadataRow): HttpError {
  const detail = hasReverted && reason !== null && reason !== '' ? reason : 'Metadata unavailable.';
  const extra = retryAt === null ? { permanent: true } : { retry_at: iso(retryAt) };
  return new HttpError(404, 'not_found', detail, { extra });
}
