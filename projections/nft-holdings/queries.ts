import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { uint } from '../../schemas/messages/common.ts';
import type { ServedTables } from '../served.ts';
import { count, feltHex, feltParam, feltText, upToSql } from '../transfer-reads.ts';
import { descending, uint32 } from '../descending.ts';

/** With two threads, an account of ten thousand NFTs is read in little more than half the time. */
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
    o_nft: uint,
    o_block: uint32,
    o_position: uint32,
    o_item: uint32,
    o_count: count,
    o_batches: count,
  })
  .transform((row) => ({
    held: {
      token: row.o_token,
      tokenId: row.o_token_id,
      kind: row.o_kind,
      block: descending(row.o_block),
    },
    /** Position of the transfer that brought it to the account, comparable with that of `headRow`. */
    place: [row.o_nft, row.o_block, row.o_position, row.o_item].join(),
    nft: row.o_nft,
    count: row.o_count,
    batches: row.o_batches,
  }));

const headRow = z
  .object({ o_nft: uint, o_block: uint32, o_position: uint32, o_item: uint32 })
  .transform((row) => [row.o_nft, row.o_block, row.o_position, row.o_item].join());

type Found = z.infer<typeof heldRow>;

interface Held {
  held: HeldNft[];
  /** null: the page lies past the last NFT. */
  count: number | null;
}

/**
 * An account with more NFTs is not checked whole at each page: in a table of millions, each NFT is in another granule.
 */
const MAX_CHECKED = 1000;

/**
 * The NFTs that an account holds at a height, by contract and id, and their number; none and null where the page lies past the last.
 *
 * The account's own moves show what it received and did not send on. An ERC-1155 id, or an NFT of an ERC-721 contract
 * that breaks the standard, may have gone to another account without a move of this one; `nft_places` shows that. Of an
 * account with more than `MAX_CHECKED` NFTs, only the ERC-721 ones of the page are checked there, and those that are no
 * longer its own are dropped from the page: `count` and the offsets of pages include NFTs that a contract took away in
 * breach of the standard.
 */
export async function heldNfts(
  clickhouse: RowReader,
  tables: ServedTables,
  of: { account: Felt; token: Felt | null; upTo: number },
  page: { offset: number; limit: number },
  maxChecked = MAX_CHECKED,
): Promise<Held> {
  const read = (...checked: HeldNft['kind'][]) => readHeld(clickhouse, tables, { ...of, checked }, page);
  let found = await read();
  const [first] = found;
  if (first === undefined) return { held: [], count: null };
  const isBounded = first.count <= maxChecked;
  if (isBounded && found.length < first.count) {
    found = await read('erc721', 'erc1155');
    return { held: found.map(({ held }) => held), count: found[0]?.count ?? null };
  }
  if (!isBounded && first.batches > 0) found = await read('erc1155');
  const heads = await headsAmong(clickhouse, tables, found, of.upTo);
  const held = found.filter(({ place }) => heads.has(place)).map((row) => row.held);
  if (isBounded) return { held, count: held.length === 0 ? null : held.length };
  return { held, count: found[0]?.count ?? null };
}

const PLACE = 'block_desc, position_desc, item_desc';

/** By the account's own moves; NFTs of the kinds in `checked` only if no other account has received them since. */
async function readHeld(
  clickhouse: RowReader,
  tables: ServedTables,
  {
    account,
    token,
    upTo,
    checked,
  }: { account: Felt; token: Felt | null; upTo: number; checked: readonly HeldNft['kind'][] },
  page: { offset: number; limit: number },
): Promise<Found[]> {
  const own = `account = ${feltParam('account')}${token === null ? '' : ` AND token = ${feltParam('token')}`}`;
  const moves = tables.table('nft_moves');
  const newest = `SELECT * FROM ${moves} FINAL WHERE ${own} ${upToSql(upTo)}
    ORDER BY token, token_id, ${PLACE} LIMIT 1 BY token, token_id`;
  const isChecked = 'kind IN {checked:Array(String)}';
  // A superset suffices: merging versions would double the time of the statement.
  const candidates = `SELECT nft FROM ${moves} WHERE ${own} AND ${isChecked}`;
  const alive = `SELECT nft, ${PLACE} FROM ${tables.table('nft_places')} PREWHERE nft IN (${candidates}) ${upToSql(upTo)}
    GROUP BY nft, ${PLACE} HAVING argMax(is_deleted, seq) = 0`;
  const heads = `SELECT nft, head.1, head.2, head.3 FROM (SELECT nft, min((${PLACE})) AS head FROM (${alive}) GROUP BY nft)`;
  const others = checked.length === 0 ? '' : `AND (NOT ${isChecked} OR (nft, ${PLACE}) IN (${heads}))`;
  return await clickhouse.rows(
    {
      name: 'nft-holdings.held',
      sql: `SELECT hex(token) AS o_token, token_id AS o_token_id, kind AS o_kind, nft AS o_nft,
          block_desc AS o_block, position_desc AS o_position, item_desc AS o_item,
          count() OVER () AS o_count, countIf(kind = 'erc1155') OVER () AS o_batches
        FROM (${newest}) WHERE leg != 1 ${others}
        ORDER BY token, token_id LIMIT {limit:UInt32} OFFSET {offset:UInt32}`,
      row: heldRow,
    },
    {
      account: feltHex(account),
      ...(token === null ? {} : { token: feltHex(token) }),
      checked,
      up_to: descending(upTo),
      ...page,
    },
    { settings },
  );
}

/** Places of the last transfers of these NFTs, up to a height: an NFT whose place is not among them has been transferred since. */
async function headsAmong(
  clickhouse: RowReader,
  tables: ServedTables,
  found: readonly Found[],
  upTo: number,
): Promise<ReadonlySet<string>> {
  if (found.length === 0) return new Set();
  const rows = await clickhouse.rows(
    {
      name: 'nft-holdings.heads',
      sql: `SELECT nft AS o_nft, block_desc AS o_block, position_desc AS o_position, item_desc AS o_item
        FROM ${tables.table('nft_places')} FINAL PREWHERE nft IN {nfts:Array(UInt256)} ${upToSql(upTo)}
        ORDER BY nft, ${PLACE} LIMIT 1 BY nft`,
      row: headRow,
    },
    { nfts: found.map(({ nft }) => BigInt(nft)), up_to: descending(upTo) },
    { settings: { max_threads: 1 } },
  );
  return new Set(rows);
}
