import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { uint } from '../../schemas/messages/common.ts';
import type { ServedTables } from '../served.ts';
import { feltHex, feltParam, feltText, upToSql } from '../transfer-reads.ts';
import { descending, uint32 } from '../descending.ts';

const lastRow = z
  .object({ o_to: feltText, o_block: uint32, o_timestamp: uint32, o_txhash: feltText })
  .transform((row) => ({
    to: row.o_to,
    block: descending(row.o_block),
    timestamp: row.o_timestamp,
    txHash: row.o_txhash,
  }));

/** `to` is the zero address where the NFT was burned. Times are unix seconds. */
export type LastTransfer = z.infer<typeof lastRow>;

/** The newest transfer of an NFT up to a height; null where there is none. */
export async function lastTransferOf(
  clickhouse: RowReader,
  tables: ServedTables,
  { token, tokenId, upTo }: { token: Felt; tokenId: bigint; upTo: number },
): Promise<LastTransfer | null> {
  const [row] = await clickhouse.rows(
    {
      name: 'nft-transfers.last',
      sql: `SELECT hex(to_address) AS o_to, block_desc AS o_block, timestamp AS o_timestamp, hex(tx_hash) AS o_txhash
        FROM ${tables.table('nft_transfers')} FINAL
        WHERE token = ${feltParam('token')} AND token_id = {token_id:UInt256} ${upToSql(upTo)}
        ORDER BY block_desc, position_desc, item_desc LIMIT 1`,
      row: lastRow,
    },
    { token: feltHex(token), token_id: tokenId.toString(), up_to: descending(upTo) },
    { settings: { max_threads: 1 } },
  );
  return row ?? null;
}

const nftRow = z
  .object({ o_token: feltText, o_token_id: uint, o_kind: z.enum(['erc721', 'erc1155']) })
  .transform((row) => ({ token: row.o_token, tokenId: row.o_token_id, standard: row.o_kind }));

/** An NFT that was transferred; its id is decimal. */
export type KnownNft = z.infer<typeof nftRow>;

/** Transferred NFTs after `after`, ordered by contract and id. */
export async function nftsAfter(
  clickhouse: RowReader,
  tables: ServedTables,
  after: Pick<KnownNft, 'token' | 'tokenId'> | null,
  limit: number,
): Promise<KnownNft[]> {
  const own = feltParam('token');
  const rest = `WHERE token >= ${own} AND (token > ${own} OR token_id > {token_id:UInt256})`;
  return await clickhouse.rows(
    {
      name: 'nft-transfers.nfts',
      sql: `SELECT hex(token) AS o_token, token_id AS o_token_id, kind AS o_kind
        FROM ${tables.table('nft_transfers')} FINAL ${after === null ? '' : rest}
        ORDER BY token, token_id LIMIT 1 BY token, token_id LIMIT {limit:UInt32}`,
      row: nftRow,
    },
    { limit, ...(after === null ? {} : { token: feltHex(after.token), token_id: after.tokenId }) },
    { settings: { max_threads: 1 } },
  );
}
