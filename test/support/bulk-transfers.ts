import { createHash } from 'node:crypto';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { FileRow } from './export-client.ts';
import { COIN } from './small-chain.ts';
import type { TableNames, WorldBlock } from './transfer-world.ts';

/**
 * So many transfers of one token, with hashes that cannot be compressed, that no buffer on the way to a client holds them.
 * Those of a block have the amounts 0, 1, 2, …
 */
export interface Bulk {
  readonly token: Felt;
  readonly perBlock: number;
  /** They are in the blocks below this height. */
  readonly below: number;
}

const MAX_UINT32 = 4_294_967_295;
const FIRST_POSITION_DESC = 4_294_000_000;

/** Writes only the rows of `transfers`, with the versions that their blocks have; returns how many. */
export async function writeBulk(
  owner: ClickHouse,
  names: TableNames,
  { token, perBlock, below }: Bulk,
): Promise<number> {
  const [transfers = '', blocks = ''] = [names['transfers'], names['indexed_blocks']];
  const hex = (felt: string): string => `toFixedString(unhex('${felt.slice(2)}'), 32)`;
  const random32 = (of: string): string =>
    `toFixedString(concat('\\0', substring(SHA256(concat('${of}', toString(block_desc), toString(n))), 2)), 32)`;
  await owner.command(`INSERT INTO ${transfers} (token, block_desc, position_desc, item_desc, from_address, to_address,
      kind, amount, tx_hash, fee_unit, execution_status, block_hash, timestamp, seq)
    SELECT ${hex(token)}, block_desc, ${FIRST_POSITION_DESC} - n, ${MAX_UINT32}, ${random32('from')}, ${random32('to')}, 'erc20', n,
      ${random32('tx')}, ${hex(COIN)}, 'SUCCEEDED', block_hash, timestamp, seq
    FROM ${blocks} FINAL ARRAY JOIN range(${perBlock}) AS n WHERE block_desc > ${MAX_UINT32 - below}`);
  return below * perBlock;
}

export async function deleteBulk(owner: ClickHouse, names: TableNames, { token }: Bulk): Promise<void> {
  await owner.command(`ALTER TABLE ${names['transfers']} DELETE WHERE token = unhex('${token.slice(2)}')`, {
    settings: { mutations_sync: 2 },
  });
}

/**
 * The rows that an export of them has.
 *
 * @param blocks those that were indexed when they were written, by height
 * @param l1 highest height that is accepted on L1
 */
export function bulkRows(
  { token, perBlock, below }: Bulk,
  blocks: ReadonlyMap<number, WorldBlock>,
  l1: number,
): FileRow[] {
  const rows: FileRow[] = [];
  for (let height = 0; height < below; height += 1) {
    const block = blocks.get(height);
    if (block?.hash === undefined) throw new Error(`no block ${height} with a hash`);
    for (let n = 0; n < perBlock; n += 1) {
      const random32 = (of: string): string =>
        `0x00${createHash('sha256')
          .update(`${of}${MAX_UINT32 - height}${n}`)
          .digest('hex')
          .slice(2)}`;
      rows.push({
        block: String(height),
        block_hash: block.hash,
        timestamp: String(block.timestamp * 1000),
        txhash: random32('tx'),
        event_index: String(MAX_UINT32 - FIRST_POSITION_DESC + n),
        token_address: token,
        token_symbol: '',
        token_decimals: null,
        kind: 'erc20',
        from_address: random32('from'),
        to_address: random32('to'),
        value: String(n),
        value_float: null,
        nft_token_id: '',
        is_fee: 'false',
        fee: '0',
        fee_unit: COIN,
        execution_status: 'SUCCEEDED',
        finality: height <= l1 ? 'ACCEPTED_ON_L1' : 'ACCEPTED_ON_L2',
        price_usd: null,
      });
    }
  }
  return rows;
}

export const sumOf = (rows: readonly FileRow[]): bigint =>
  rows.reduce((total, row) => total + BigInt(row['value'] ?? 0), 0n);
