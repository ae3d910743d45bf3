import { z } from 'zod';

import type { ClickHouse, Params, RowParser, RowReader, Settings } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { tokenStandard, uint } from '../../schemas/messages/common.ts';
import type { ServedTables } from '../served.ts';
import { amongFelts, feltHex, feltParam, feltText, tracedColumns, upToSql } from '../transfer-reads.ts';
import type { TracedTransfer, TransferPosition, TransferSource, VersionedSource } from '../transfer-reads.ts';
import { ascendingSql, descending } from '../descending.ts';

export {
  MAX_EXPORT_PRICES,
  MAX_RANGE_PRICES,
  PRICES_OF_HOUR,
  exportStatement,
  exportedCount,
  exportedTokens,
  isSettledAbove,
  priceScope,
  rangeState,
} from '../transfer-export.ts';
export type { ExportFormat, ExportedToken, TransferExport } from '../transfer-export.ts';
export {
  MAX_HEIGHT,
  feltFilters,
  newestTransfer,
  tracedRow,
  transferCount,
  transferPage,
  transferPositions,
  transferSample,
  versionedTransfers,
} from '../transfer-reads.ts';
export type {
  FeltFilter,
  PageRead,
  StoredTransfer,
  TracedTransfer,
  TransferFilters,
  TransferOrder,
  TransferPosition,
  TransferSource,
  VersionedSource,
  VersionedTransfer,
} from '../transfer-reads.ts';

/** The sorting key of `transfers`. */
const KEY = 'token, block_desc, position_desc, item_desc';

/** A token's transfers, in the order of the key. */
export function transfersOfToken(tables: ServedTables): TransferSource {
  return {
    sql: `FROM ${tables.table('transfers')} FINAL WHERE token = ${feltParam('token')}`,
    settles: ['token'],
  };
}

/** The transfers of the searched token that the searched account has no part in: the rest of a search is its feed. */
export function transfersOfSearchedToken(tables: ServedTables): TransferSource {
  const search = feltParam('search');
  return {
    sql: `FROM ${tables.table('transfers')} FINAL WHERE token = ${search} AND from_address != ${search} AND to_address != ${search}`,
    settles: ['search'],
  };
}

/** A token's transfers at these positions. */
export function transfersAt(tables: ServedTables, positions: readonly TransferPosition[]): TransferSource {
  return {
    sql: `FROM ${tables.table('transfers')} FINAL
      WHERE token = ${feltParam('token')} AND (block_desc, position_desc, item_desc) IN (
        SELECT arrayJoin(arrayZip({at_blocks:Array(UInt32)}, {at_positions:Array(UInt32)}, {at_items:Array(UInt32)})))`,
    params: {
      at_blocks: positions.map(({ block }) => descending(block)),
      at_positions: positions.map(({ position }) => descending(position)),
      at_items: positions.map(({ item }) => descending(item)),
    },
    settles: ['token'],
  };
}

/**
 * Every transfer at one height: the block says which tokens it holds. The newest version of each row is taken by hand:
 * a block has rows in as many places as it has tokens, and FINAL took 47 ms over 50 of them, this 38 ms.
 */
export function transfersOfBlock(tables: ServedTables, height: number): TransferSource {
  return {
    sql: `FROM (
      SELECT * FROM ${tables.table('transfers')}
      WHERE block_desc = {own_block:UInt32} AND token IN (
        SELECT arrayJoin(tokens) FROM ${tables.table('indexed_blocks')} FINAL WHERE block_desc = {own_block:UInt32}
      )
      ORDER BY ${KEY}, seq DESC LIMIT 1 BY ${KEY}
    ) WHERE is_deleted = 0`,
    params: { own_block: descending(height) },
    settles: [],
  };
}

const feeRow = z.object({ token: feltText, amount: uint });

/** Sums of the fees that were paid in a block, by token. */
export async function feesOfBlock(
  clickhouse: RowReader,
  tables: ServedTables,
  height: number,
): Promise<z.infer<typeof feeRow>[]> {
  const { sql: rows, params } = transfersOfBlock(tables, height);
  const sql = `SELECT hex(token) AS token, toString(sum(amount)) AS amount ${rows} AND is_fee = 1 GROUP BY token ORDER BY token`;
  return await clickhouse.rows({ name: 'transfers.fees-of-block', sql, row: feeRow }, params ?? {});
}

/** A transaction's transfers, where `tx_index` says. A hash that two blocks include has the rows of both. */
export function transfersOfTransaction(tables: ServedTables): TransferSource {
  return { sql: transactionRows(tables, 'txhash'), settles: ['txhash'] };
}

/** A transaction's transfer at a position and item; a hash that two blocks include may have two. */
export function transferOfTransaction(
  tables: ServedTables,
  { position, item }: Omit<TransferPosition, 'block'>,
): TransferSource {
  return {
    sql: `${transactionRows(tables, 'txhash')} AND position_desc = {at_position:UInt32} AND item_desc = {at_item:UInt32}`,
    params: { at_position: descending(position), at_item: descending(item) },
    settles: ['txhash'],
  };
}

/** The transfers of the searched hash that the searched address has no part in. */
export function transfersOfSearchedTransaction(tables: ServedTables): TransferSource {
  const search = feltParam('search');
  return {
    sql: `${transactionRows(tables, 'search')} AND token != ${search} AND from_address != ${search} AND to_address != ${search}`,
    settles: ['search'],
  };
}

/**
 * The rows of the hash in the tokens and blocks that `tx_index` names. An outdated entry only names places without such
 * a row, so it is read without FINAL: among 5 M transfers the read takes 9.9 ms, with FINAL and whole keys 11.8
 * (medians of three).
 */
function transactionRows(tables: ServedTables, param: 'txhash' | 'search'): string {
  return `FROM ${tables.table('transfers')} FINAL WHERE tx_hash = ${feltParam(param)}
    AND (token, block_desc) IN (
      SELECT arrayJoin(tokens), block_desc FROM ${tables.table('tx_index')} WHERE tx_hash = ${feltParam(param)}
    )`;
}

/** Every version of a token's transfers. */
export function versionsOfToken(tables: ServedTables): VersionedSource {
  return {
    sql: `FROM ${tables.table('transfers')} WHERE token = ${feltParam('token')}`,
    key: KEY,
    subject: 'token',
    settles: ['token'],
  };
}

/** Every version of the transfers between the heights of the filters, of the tokens that the indexed blocks there hold. */
export function versionsOfAll(tables: ServedTables): VersionedSource {
  return {
    sql: `FROM ${tables.table('transfers')} WHERE token IN (
      SELECT arrayJoin(tokens) FROM ${tables.table('indexed_blocks')} FINAL
      WHERE block_desc BETWEEN {newest:UInt32} AND {oldest:UInt32})`,
    key: KEY,
    subject: null,
    settles: [],
  };
}

const heightRow = z.object({ height: z.int() });

/** Every height at which a contract has a transfer, lowest first. */
export async function transferHeights(
  clickhouse: ClickHouse,
  tables: ServedTables,
  token: Felt,
): Promise<number[]> {
  const sql = `SELECT DISTINCT ${ascendingSql('block_desc')} AS height FROM ${tables.table('transfers')} FINAL
    WHERE token = ${feltParam('token')} ORDER BY height`;
  const query = { name: 'transfers.heights', sql, row: heightRow };
  return (await clickhouse.rows(query, { token: feltHex(token) })).map(({ height }) => height);
}

/** Takes transfers as they are read, in the order of the read. */
export type OnTraced = (transfers: readonly TracedTransfer[]) => void;

/** Which transfers of a token a trace reads. */
export interface TracedSearch {
  readonly token: Felt;
  /** The highest height. */
  readonly upTo: number;
  /** One for all reads of the trace. */
  readonly row: RowParser<TracedTransfer>;
}

async function readTraced(
  clickhouse: ClickHouse,
  { name, rows, row, params }: { name: string; rows: string; row: TracedSearch['row']; params: Params },
  onTransfers: OnTraced,
): Promise<void> {
  const query = { name, sql: `SELECT ${tracedColumns} FROM ${rows}`, row, isText: true as const };
  await clickhouse.eachPart(query, params, onTransfers, { settings: { max_result_rows: 0 } });
}

/** All transfers of a token, newest first. */
export async function tracedOfToken(
  clickhouse: ClickHouse,
  tables: ServedTables,
  { token, upTo, row }: TracedSearch,
  onTransfers: OnTraced,
): Promise<void> {
  const rows = `${tables.table('transfers')} FINAL WHERE token = ${feltParam('token')} ${upToSql(upTo)}
    ORDER BY block_desc, position_desc, item_desc`;
  const params = { token: feltHex(token), up_to: descending(upTo) };
  await readTraced(clickhouse, { name: 'transfers.of-token', rows, row, params }, onTransfers);
}

/** A token's transfers from or to any of these accounts; one between two of them comes twice. */
export async function tracedOfAccounts(
  clickhouse: ClickHouse,
  tables: ServedTables,
  { token, accounts, upTo, row }: TracedSearch & { readonly accounts: readonly Felt[] },
  onTransfers: OnTraced,
): Promise<void> {
  const rows = `${tables.table('account_feed')} FINAL
    WHERE account ${amongFelts('accounts')} AND token = ${feltParam('token')} ${upToSql(upTo)}`;
  const params = { token: feltHex(token), accounts: accounts.map(feltHex), up_to: descending(upTo) };
  await readTraced(clickhouse, { name: 'transfers.of-accounts', rows, row, params }, onTransfers);
}

/**
 * An account's newest transfers of a token, at most so many: its legs say where they are, however many it has of other
 * tokens. `hasLegs` false: transfers of the token are of unknown standard, which have none.
 */
export async function tracedOfBusyAccount(
  clickhouse: ClickHouse,
  tables: ServedTables,
  search: TracedSearch & { readonly account: Felt; readonly most: number; readonly hasLegs: boolean },
  onTransfers: OnTraced,
): Promise<void> {
  const { token, account, upTo, row, most, hasLegs } = search;
  const place = 'block_desc, position_desc, item_desc';
  const rows = `${tables.table('transfers')} FINAL
    WHERE token = ${feltParam('token')} AND (${place}) IN (
      SELECT DISTINCT ${place} FROM ${tables.table(hasLegs ? 'account_ledger' : 'account_feed')} FINAL
      WHERE account = ${feltParam('account')} AND token = ${feltParam('token')} ${upToSql(upTo)}
      ORDER BY ${place} LIMIT {most:UInt32})`;
  const params = { token: feltHex(token), account: feltHex(account), most, up_to: descending(upTo) };
  await readTraced(clickhouse, { name: 'transfers.of-busy-account', rows, row, params }, onTransfers);
}

const hashRow = z.object({ o_hash: feltText });

/** The transaction of a token's first transfer in a block; null: there is none. */
export async function firstTransferIn(
  clickhouse: RowReader,
  tables: ServedTables,
  { token, block }: { token: Felt; block: number },
): Promise<Felt | null> {
  const sql = `SELECT hex(tx_hash) AS o_hash FROM ${tables.table('transfers')} FINAL
    WHERE token = ${feltParam('token')} AND block_desc = ${ascendingSql('{block:UInt32}')}
    ORDER BY position_desc DESC, item_desc DESC LIMIT 1`;
  const query = { name: 'transfers.first-in', sql, row: hashRow };
  const [row] = await clickhouse.rows(query, { token: feltHex(token), block });
  return row?.o_hash ?? null;
}

/** For the newest row: reads a granule of each part, not blocks of 65,409 rows. */
const ONE_ROW = { max_threads: 1, max_block_size: 512 } as const;

const kindRow = z.object({ kind: tokenStandard });

/**
 * Whether a token has, or had in blocks that were reverted, transfers of unknown standard, beside others or alone: the ledger
 * has no legs of these. The newest transfer shows it, unless it is of ERC-1155, of which a contract of any standard may have events
 * (`meanings` of the layouts): then the kinds of all are read, a byte each. While a contract is reclassified, its older transfers
 * may be of unknown standard although the newest is not.
 */
export async function hasUnknownTransfers(
  clickhouse: ClickHouse,
  tables: ServedTables,
  token: Felt,
): Promise<boolean> {
  const ofToken = `WHERE token = ${feltParam('token')}`;
  const newest = `SELECT kind FROM ${tables.table('transfers')} FINAL ${ofToken} ORDER BY block_desc LIMIT 1`;
  const unknown = `SELECT kind FROM ${tables.table('transfers')} PREWHERE kind = 'unknown' ${ofToken} LIMIT 1`;
  const kindOf = async (sql: string, settings: Settings): Promise<string | undefined> => {
    const query = { name: 'transfers.kind', sql, row: kindRow };
    return (await clickhouse.rows(query, { token: feltHex(token) }, { settings }))[0]?.kind;
  };
  const kind = await kindOf(newest, ONE_ROW);
  return (
    kind === 'unknown' || (kind === 'erc1155' && (await kindOf(unknown, { max_threads: 1 })) !== undefined)
  );
}
