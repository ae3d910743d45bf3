import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { uint } from '../../schemas/messages/common.ts';
import type { ServedBuilds } from '../served.ts';
import { feltHex, feltParam, feltText } from '../transfer-reads.ts';
import { descending, uint32 } from '../descending.ts';

type Reader = Pick<ClickHouse, 'rows'>;
type Tables = Pick<ServedBuilds, 'table'>;

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
    o_nft: uint,
    o_block: uint32,
    o_position: uint32,
    o_item: uint32,
    o_count: z.coerce.number().int().min(0),
    o_batches: z.coerce.number().int().min(0),
  })
  .transform((row) => ({
    held: {
      token: row.o_token,
      tokenId: row.o_token_id,
      kind: row.o_kind,
      block: descending(row.o_block),
    },
    /** Where it came to the account, as `headRow` tells where it was last. */
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
  /** null: the page lies past the last of them. */
  count: number | null;
}

/** Of an account with more, not every NFT is looked for at each page: in a table of millions each lies somewhere else. */
const MOST_CHECKED = 1000;

/**
 * The NFTs that an account holds, by contract and id, and how many there are in all; where the page lies past the last of
 * them, none and null.
 *
 * What it was sent and has not sent on is told by its own moves. An ERC-1155 id, or an ERC-721 contract that breaks the
 * rules, may have gone to another without a move of this account: its places tell. Of an account with more than
 * `MOST_CHECKED`, all ERC-721, only the NFTs of the page are checked against them, and the others where one of these is
 * not its own: so `count` may hold NFTs that a contract took from it against the rules.
 */
export async function heldNfts(
  clickhouse: Reader,
  tables: Tables,
  of: { account: Felt; token: Felt | null },
  page: { offset: number; limit: number },
  mostChecked = MOST_CHECKED,
): Promise<Held> {
  const read = (...checked: HeldNft['kind'][]) => readHeld(clickhouse, tables, { ...of, checked }, page);
  let found = await read();
  const [first] = found;
  if (first === undefined) return { held: [], count: null };
  const isBounded = first.count <= mostChecked;
  if (!isBounded && first.batches > 0) found = await read('erc1155');
  const isPart = found.length < first.count;
  if ((isBounded && isPart) || !(await areHeads(clickhouse, tables, found))) {
    found = await read('erc721', 'erc1155');
  }
  return { held: found.map(({ held }) => held), count: found[0]?.count ?? null };
}

const PLACE = 'block_desc, position_desc, item_desc';

/** By the account's own moves; of the kinds in `checked`, only where no other has it since. */
async function readHeld(
  clickhouse: Reader,
  tables: Tables,
  { account, token, checked }: { account: Felt; token: Felt | null; checked: readonly HeldNft['kind'][] },
  page: { offset: number; limit: number },
): Promise<Found[]> {
  const own = `account = ${feltParam('account')}${token === null ? '' : ` AND token = ${feltParam('token')}`}`;
  const moves = tables.table('nft_moves');
  const newest = `SELECT * FROM ${moves} FINAL WHERE ${own}
    ORDER BY token, token_id, ${PLACE} LIMIT 1 BY token, token_id`;
  const isChecked = 'kind IN {checked:Array(String)}';
  // A superset, so without merging versions, which takes as long again as all of this.
  const candidates = `SELECT nft FROM ${moves} WHERE ${own} AND ${isChecked}`;
  const alive = `SELECT nft, ${PLACE} FROM ${tables.table('nft_places')} PREWHERE nft IN (${candidates})
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
    { account: feltHex(account), ...(token === null ? {} : { token: feltHex(token) }), checked, ...page },
    { settings },
  );
}

/** Whether each of these NFTs was nowhere else since. */
async function areHeads(clickhouse: Reader, tables: Tables, found: readonly Found[]): Promise<boolean> {
  if (found.length === 0) return true;
  const rows = await clickhouse.rows(
    {
      name: 'nft-holdings.heads',
      sql: `SELECT nft AS o_nft, block_desc AS o_block, position_desc AS o_position, item_desc AS o_item
        FROM ${tables.table('nft_places')} FINAL PREWHERE nft IN {nfts:Array(UInt256)}
        ORDER BY nft, ${PLACE} LIMIT 1 BY nft`,
      row: headRow,
    },
    { nfts: found.map(({ nft }) => BigInt(nft)) },
    { settings: { max_threads: 1 } },
  );
  const heads = new Set(rows);
  return found.every(({ place }) => heads.has(place));
}
