import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ServedBuilds } from '../served.ts';
import { feltHex, feltParam } from '../transfer-reads.ts';
import type { TransferSource } from '../transfer-reads.ts';

export { MAX_HEIGHT, transferCount, transferPage, transferSample } from '../transfer-reads.ts';
export type {
  FeltFilter,
  PageRead,
  StoredTransfer,
  TransferFilters,
  TransferOrder,
  TransferPosition,
  TransferSource,
} from '../transfer-reads.ts';

type Tables = Pick<ServedBuilds, 'table'>;

/** A token's transfers, in the order of the key. */
export function transfersOfToken(tables: Tables): TransferSource {
  return {
    sql: `FROM ${tables.table('transfers')} FINAL WHERE token = ${feltParam('token')}`,
    settles: 'token',
  };
}

/** The transfers of the searched token that the searched account has no part in: the rest of a search is its feed. */
export function transfersOfSearchedToken(tables: Tables): TransferSource {
  const search = feltParam('search');
  return {
    sql: `FROM ${tables.table('transfers')} FINAL WHERE token = ${search} AND from_address != ${search} AND to_address != ${search}`,
    settles: 'search',
  };
}

/**
 * Every transfer at one height: the block says which tokens it holds. The newest version of each row is taken by hand:
 * a block has rows in as many places as it has tokens, and FINAL took 47 ms over 50 of them, this 38 ms.
 */
export function transfersOfBlock(tables: Tables, height: number): TransferSource {
  const desc = 0xffff_ffff - height;
  const key = 'token, block_desc, position_desc, item_desc';
  return {
    sql: `FROM (
      SELECT * FROM ${tables.table('transfers')}
      WHERE block_desc = ${desc} AND token IN (
        SELECT arrayJoin(tokens) FROM ${tables.table('indexed_blocks')} FINAL WHERE block_desc = ${desc}
      )
      ORDER BY ${key}, seq DESC LIMIT 1 BY ${key}
    ) WHERE is_deleted = 0`,
    settles: null,
  };
}

/** A transaction's transfers, by the full keys that `tx_index` holds. A hash that landed twice has both blocks' rows. */
export function transfersOfTransaction(tables: Tables): TransferSource {
  return { sql: transactionRows(tables, 'txhash'), settles: 'txhash' };
}

/** The transfers of the searched hash that the searched address has no part in. */
export function transfersOfSearchedTransaction(tables: Tables): TransferSource {
  const search = feltParam('search');
  return {
    sql: `${transactionRows(tables, 'search')} AND token != ${search} AND from_address != ${search} AND to_address != ${search}`,
    settles: 'search',
  };
}

/** The repeated `tx_hash` guards against a key that another transaction took in the same height between the two reads. */
function transactionRows(tables: Tables, param: 'txhash' | 'search'): string {
  return `FROM ${tables.table('transfers')} FINAL WHERE tx_hash = ${feltParam(param)}
    AND (token, block_desc, position_desc, item_desc) IN (
      SELECT of_token, block_desc, toUInt32(4294967295 - of_position), toUInt32(4294967295 - of_item)
      FROM ${tables.table('tx_index')} FINAL
      ARRAY JOIN tokens AS of_token, positions AS of_position, items AS of_item
      WHERE tx_hash = ${feltParam(param)}
    )`;
}

const heightRow = z.object({ height: z.int() });

/** Every height at which a contract has a transfer, lowest first. */
export async function transferHeights(
  clickhouse: ClickHouse,
  tables: Tables,
  token: Felt,
): Promise<number[]> {
  const sql = `SELECT DISTINCT toUInt32(4294967295 - block_desc) AS height FROM ${tables.table('transfers')} FINAL
    WHERE token = ${feltParam('token')} ORDER BY height`;
  const query = { name: 'transfers.heights', sql, row: heightRow };
  return (await clickhouse.rows(query, { token: feltHex(token) })).map(({ height }) => height);
}
