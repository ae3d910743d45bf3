import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { uint } from '../../schemas/messages/common.ts';
import type { ServedBuilds } from '../served.ts';
import { feltHex, feltParam, feltText } from '../transfer-reads.ts';

type Reader = Pick<ClickHouse, 'rows'>;
type Tables = Pick<ServedBuilds, 'table'>;

const MAX_UINT32 = 0xffff_ffff;

/** Both cores: an account of ten thousand NFTs is read in little more than half the time. */
const settings = { max_threads: 2 } as const;

/** An NFT whose most recent recipient is the account. */
export interface HeldNft {
  readonly token: Felt;
  /** Decimal. */
  readonly tokenId: string;
  readonly kind: 'erc721' | 'erc1155';
  /** Height of the transfer that brought it. */
  readonly block: number;
}

const heldRow = z
  .object({
    o_token: feltText,
    o_token_id: uint,
    o_kind: z.enum(['erc721', 'erc1155']),
    o_block: z
      .int()
      .min(0)
      .max(MAX_UINT32)
      .transform((desc) => MAX_UINT32 - desc),
    o_count: z.coerce.number().int().min(0),
  })
  .transform((row) => ({
    held: { token: row.o_token, tokenId: row.o_token_id, kind: row.o_kind, block: row.o_block },
    count: row.o_count,
  }));

/**
 * The NFTs that an account holds, by contract and id, and how many there are in all; where the page lies past the last of
 * them, none and null.
 *
 * What it was sent and has not sent on is told by its own moves. An ERC-1155 id, or an ERC-721 contract that breaks the
 * rules, may have gone to another without a move of this account: its places tell.
 */
export async function heldNfts(
  clickhouse: Reader,
  tables: Tables,
  { account, token }: { account: Felt; token: Felt | null },
  page: { offset: number; limit: number },
): Promise<{ held: HeldNft[]; count: number | null }> {
  const own = `account = ${feltParam('account')}${token === null ? '' : ` AND token = ${feltParam('token')}`}`;
  const place = 'block_desc, position_desc, item_desc';
  const moves = tables.table('nft_moves');
  // A superset, so without merging versions, which takes as long again as all of this.
  const candidates = `SELECT nft FROM ${moves} WHERE ${own}`;
  const newest = `SELECT * FROM ${moves} FINAL WHERE ${own}
    ORDER BY token, token_id, ${place} LIMIT 1 BY token, token_id`;
  const alive = `SELECT nft, ${place} FROM ${tables.table('nft_places')} PREWHERE nft IN (${candidates})
    GROUP BY nft, ${place} HAVING argMax(is_deleted, seq) = 0`;
  const heads = `SELECT nft, head.1, head.2, head.3 FROM (SELECT nft, min((${place})) AS head FROM (${alive}) GROUP BY nft)`;
  const rows = await clickhouse.rows(
    {
      name: 'nft-holdings.held',
      sql: `SELECT hex(token) AS o_token, token_id AS o_token_id, kind AS o_kind, block_desc AS o_block,
          count() OVER () AS o_count
        FROM (${newest}) WHERE leg != 1 AND (nft, ${place}) IN (${heads})
        ORDER BY token, token_id LIMIT {limit:UInt32} OFFSET {offset:UInt32}`,
      row: heldRow,
    },
    { account: feltHex(account), ...(token === null ? {} : { token: feltHex(token) }), ...page },
    { settings },
  );
  return { held: rows.map(({ held }) => held), count: rows[0]?.count ?? null };
}
