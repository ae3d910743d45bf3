import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { heldNfts } from '../../projections/nft-holdings/queries.ts';
import type { HeldNft } from '../../projections/nft-holdings/queries.ts';
import { metadataOf, nftKey } from '../../projections/nft-metadata/queries.ts';
import { lastTransferOf } from '../../projections/nft-transfers/queries.ts';
import { MAX_HEIGHT } from '../../projections/transfers/queries.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import { nftOwnerAnswer, ownedNftsAnswer } from '../../schemas/api/nft.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { REACHABLE_ROWS, resolvePage } from '../http/envelope.ts';
import { invalidPage, notFound } from '../http/errors.ts';
import { address, boolean, limit, page, tokenId } from '../http/params.ts';
import type { PageParameter } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { isoSeconds } from '../http/times.ts';
import { TRUNCATION_NOTE, presentOwned } from './present.ts';

export interface NftOwnershipDeps {
  /** Read-only. */
  readonly clickhouseFor: ClickHouseFor;
  /** Base URL of the IPFS gateway in answers. */
  readonly ipfsGateway: string;
}

/** NFTs per page, as the contract defines it. */
export const nftPageSize = () => limit({ fallback: 20, max: 100 });

const common = { method: 'GET', tag: 'NFTs', auth: 'key', isCacheable: true, asOf: true } as const;

export function nftOwnershipRoutes(deps: NftOwnershipDeps): Route[] {
  return [ownerRoute(deps), ownedByRoute(deps)];
}

function ownerRoute({ clickhouseFor }: NftOwnershipDeps): Route {
  return defineRoute({
    id: 'getNftOwner',
    ...common,
    path: '/api/nft/owner/',
    summary: 'Get the owner of an NFT',
    description: [
      'Returns the last recipient; further accounts may hold units of an ERC-1155 id. The owner of a burned NFT is the zero',
      'address. An NFT that was never transferred returns 404.',
    ].join(' '),
    query: z.object({ token_address: address(), nft_token_id: tokenId() }),
    response: { 200: nftOwnerAnswer },
    errors: [404],
    async handler({ input: { query }, served, request, asOf }) {
      const { token_address: token, nft_token_id: id } = query;
      const clickhouse = clickhouseFor(request);
      const last = await lastTransferOf(clickhouse, served, {
        token,
        tokenId: id,
        upTo: asOf?.height ?? MAX_HEIGHT,
      });
      if (last === null) throw notFound('No transfers of this NFT.');
      const data = {
        token_address: token,
        nft_token_id: id.toString(),
        owner_address: last.to,
        last_transfer_block: last.block,
        last_transfer_timestamp: isoSeconds(last.timestamp),
        last_transfer_txhash: last.txHash,
      };
      return { status: 200, body: { success: true as const, data } };
    },
  });
}

function ownedByRoute({ clickhouseFor, ipfsGateway }: NftOwnershipDeps): Route {
  return defineRoute({
    id: 'listNftsOwnedBy',
    ...common,
    path: '/api/nft/owned-by/',
    summary: 'List the NFTs of an account',
    description: [
      'Lists the NFTs whose last recipient is the account, sorted by contract and id. An ERC-1155 id is listed for that one',
      'account only, even if others hold units. `name`, `image`, `description`, `attributes` and `metadata_uri` are absent',
      'until they are fetched, and with `include_metadata=false`.',
      'If an account has more than 1,000 NFTs, `count` includes those that an ERC-721 contract took away without a transfer',
      'from the account; the pages leave them out, so a page may have fewer rows than `page_size`.',
      `${TRUNCATION_NOTE} Burned NFTs are not listed: the list of the zero address is empty.`,
    ].join(' '),
    query: z.object({
      account_address: address(),
      token_address: address('Only NFTs of this contract').optional(),
      page: page(),
      page_size: nftPageSize(),
      include_metadata: boolean('Default true; false with `as_of_block`').optional(),
    }),
    response: { 200: ownedNftsAnswer },
    async handler({ input: { query }, served, request, asOf, pool }) {
      const {
        account_address: account,
        token_address: token = null,
        // Metadata may be fetched later than the block.
        include_metadata: hasMetadata = asOf === null,
      } = query;
      const clickhouse = clickhouseFor(request);
      const of = { account, token, upTo: asOf?.height ?? MAX_HEIGHT };
      const found = await pageOf(clickhouse, served, of, query.page, query.page_size);
      const collections = [...new Set(found.held.map((held) => held.token))];
      const [tokens, metadata] = await Promise.all([
        tokensByAddress(pool, served.schema('tokens'), collections),
        hasMetadata ? metadataOf(pool, served.schema('nft-metadata'), found.held, { isListed: true }) : null,
      ]);
      const data = found.held.map((held) =>
        presentOwned(held, tokens.get(held.token), metadata?.get(nftKey(held)), ipfsGateway),
      );
      return {
        status: 200,
        body: {
          success: true as const,
          page: found.number,
          page_size: query.page_size,
          count: found.count,
          data,
        },
      };
    },
  });
}

/** One read returns page and count; the last page takes two. */
async function pageOf(
  clickhouse: ClickHouse,
  served: ServedBuilds,
  of: { account: Felt; token: Felt | null; upTo: number },
  page: PageParameter,
  size: number,
): Promise<{ held: HeldNft[]; count: number; number: number }> {
  const read = (offset: number, rows: number) => heldNfts(clickhouse, served, of, { offset, limit: rows });
  if (page === 'invalid' || (page !== 'last' && page * size > REACHABLE_ROWS)) throw invalidPage();
  if (page !== 'last') {
    const { held, count } = await read((page - 1) * size, size);
    if (count === null && page > 1) throw invalidPage();
    return { held, count: count ?? 0, number: page };
  }
  const { count } = await read(0, 1);
  const last = resolvePage(page, size, count ?? 0);
  const { held, count: now } = await read(last.offset, size);
  return { held, count: now ?? count ?? 0, number: last.number };
}
