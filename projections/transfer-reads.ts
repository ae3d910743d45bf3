import { z } from 'zod';

import type { ChQuery, Params, RowParser } from '../infra/clickhouse/client.ts';
import { isFelt } from '../schemas/felt.ts';
import type { Felt } from '../schemas/felt.ts';
import { UINT, tokenStandards } from '../schemas/messages/common.ts';
import type { TokenStandard } from '../schemas/messages/common.ts';
import { MAX_UINT32, ascending, ascendingSql, descending } from './descending.ts';
import { feltSql } from './sql-terms.ts';

/**
 * Shared by the queries over `transfers` and `account_feed`. Both tables hold whole rows, newest first in their keys, so
 * a page is one read in the order of a key, or a merge of a few.
 */

/** The filters that name a felt; all of them combine with AND. */
export const feltFilters = ['account', 'from', 'to', 'token', 'txhash', 'search'] as const;
export type FeltFilter = (typeof feltFilters)[number];

export interface TransferFilters {
  /** Which felts a transfer must have, by filter. `account` matches from or to; `search` from, to, token or txhash. */
  readonly felts: Readonly<Partial<Record<FeltFilter, Felt>>>;
  /** Lowest and highest height, both inclusive. */
  readonly lo: number;
  readonly hi: number;
}

/** Position of a transfer in the chain; newest first means each of them descending. */
export interface TransferPosition {
  readonly block: number;
  readonly position: number;
  readonly item: number;
}

export type TransferOrder = 'desc' | 'asc';

/** Rows of one table by a prefix of its key: `FROM … FINAL WHERE …`, and the filters that this already applies. */
export interface TransferSource {
  readonly sql: string;
  /** Parameters of `sql` besides those of the filters. */
  readonly params?: Params;
  readonly settles: readonly FeltFilter[];
  /** A transfer may have several rows. Only positions and counts are read from such a source. */
  readonly repeats?: true;
}

/** Highest height there can be; `lo` 0 and `hi` this are no bounds. */
export const MAX_HEIGHT = 0xffff_fffe;

/** Restricts `block_desc` to heights up to this one, which is given as `up_to`, descending. */
export const upToSql = (upTo: number): string =>
  upTo < MAX_HEIGHT ? 'AND block_desc >= {up_to:UInt32}' : '';

/** A felt parameter as the key stores it. Given in hex, so that no byte of it can be read as text. */
export function feltParam(name: string): string {
  return `toFixedString(unhex({${name}:String}), 32)`;
}

/** One of many felts: a list of them as `{name:Array(String)}`, each given as `feltHex`. */
export function amongFelts(name: string): string {
  return `IN (SELECT toFixedString(unhex(arrayJoin({${name}:Array(String)})), 32))`;
}

/** The value of a `feltParam`. */
export function feltHex(felt: Felt): string {
  return felt.slice(2);
}

/** A felt as `hex(column)` gives it. */
export const feltText = z.string().transform((hex, context): Felt => {
  const text = `0x${hex.toLowerCase()}`;
  if (isFelt(text)) return text;
  context.addIssue('not a felt');
  return z.NEVER;
});

/** A UInt64, which ClickHouse writes in quotes; one beyond 2^53 is rejected. */
export const count = z.coerce.number().int().min(0);
/** An unsigned integer that may be beyond 2^53. */
export const bigUint = z
  .string()
  .regex(/^[0-9]+$/)
  .transform(BigInt);

/** One stored transfer. Amounts are decimal strings; `token_id` is "0" where the kind has none. */
export interface StoredTransfer {
  readonly token: Felt;
  readonly block: number;
  readonly position: number;
  readonly item: number;
  readonly from: Felt;
  readonly to: Felt;
  readonly kind: TokenStandard;
  readonly amount: string;
  readonly token_id: string;
  readonly txhash: Felt;
  readonly timestamp: number;
  readonly fee: string;
  readonly fee_unit: Felt;
  readonly is_fee: number;
  readonly execution_status: 'SUCCEEDED' | 'REVERTED';
}

/**
 * The aliases are not names of columns: ClickHouse would take `token` in a WHERE for the alias. Values are converted here
 * and not in SQL: most of the time of a page of 51 rows is spent analysing the statement, and each function adds to it.
 * The client asks for quoted 256-bit integers; a bare number is refused, because it was rounded.
 */
const positionColumns = 'block_desc AS o_block, position_desc AS o_position, item_desc AS o_item';
const columns = transferColumns((column) => `hex(${column})`);

function transferColumns(felt: (column: string) => string): string {
  return `${felt('token')} AS o_token, ${positionColumns},
  ${felt('from_address')} AS o_from, ${felt('to_address')} AS o_to, kind AS o_kind, amount AS o_amount, token_id AS o_token_id,
  ${felt('tx_hash')} AS o_txhash, timestamp AS o_timestamp, fee AS o_fee, ${felt('fee_unit')} AS o_fee_unit, is_fee AS o_is_fee,
  execution_status AS o_execution_status`;
}

const executionStatuses = ['SUCCEEDED', 'REVERTED'] as const;

type Columns = Readonly<Record<string, unknown>>;

const transfer: RowParser<StoredTransfer> = {
  parse(value) {
    const row = value as Columns;
    const feltOf = (hex: unknown): Felt => canonicalFelt(`0x${String(hex).toLowerCase()}`);
    return {
      token: feltOf(row['o_token']),
      block: descending(uint32Of(row['o_block'])),
      position: descending(uint32Of(row['o_position'])),
      item: descending(uint32Of(row['o_item'])),
      from: feltOf(row['o_from']),
      to: feltOf(row['o_to']),
      kind: oneOf(tokenStandards, row['o_kind']),
      amount: uintOf(row['o_amount']),
      token_id: uintOf(row['o_token_id']),
      txhash: feltOf(row['o_txhash']),
      timestamp: uint32Of(row['o_timestamp']),
      fee: uintOf(row['o_fee']),
      fee_unit: feltOf(row['o_fee_unit']),
      is_fee: uint32Of(row['o_is_fee']),
      execution_status: oneOf(executionStatuses, row['o_execution_status']),
    };
  },
};

function canonicalFelt(value: unknown): Felt {
  return isFelt(value) ? value : refuse('a felt', value);
}

function uint32Of(value: unknown): number {
  const number = integerOf(value);
  return number <= MAX_UINT32 ? number : refuse('an integer of 32 bits', value);
}

function integerOf(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
    ? value
    : refuse('an integer', value);
}

function uintOf(value: unknown): string {
  return typeof value === 'string' && UINT.test(value) ? value : refuse('a quoted integer', value);
}

function oneOf<T extends string>(values: readonly T[], value: unknown): T {
  return values.find((one) => one === value) ?? refuse(`one of ${values.join(', ')}`, value);
}

function refuse(wanted: string, value: unknown): never {
  throw new TypeError(`ClickHouse answered ${JSON.stringify(value)} where ${wanted} was expected`);
}

const predicates: Readonly<Record<FeltFilter, string>> = {
  account: `(from_address = ${feltParam('account')} OR to_address = ${feltParam('account')})`,
  from: `from_address = ${feltParam('from')}`,
  to: `to_address = ${feltParam('to')}`,
  token: `token = ${feltParam('token')}`,
  txhash: `tx_hash = ${feltParam('txhash')}`,
  search: `(from_address = ${feltParam('search')} OR to_address = ${feltParam('search')} OR token = ${feltParam('search')} OR tx_hash = ${feltParam('search')})`,
};

export interface PageRead {
  readonly order: TransferOrder;
  /** Only rows after this position in the order. */
  readonly after: TransferPosition | null;
  readonly offset: number;
  readonly limit: number;
}

const positionRow = z
  .object({ o_block: ascending, o_position: ascending, o_item: ascending })
  .transform((row): TransferPosition => ({ block: row.o_block, position: row.o_position, item: row.o_item }));

/** A page over one or several sources that share no row. */
export const transferPage = pageQuery('transfers.page', columns, transfer);

const transferInBlock: RowParser<{ readonly transfer: StoredTransfer; readonly blockHash: Felt }> = {
  parse: (row) => ({
    transfer: transfer.parse(row),
    blockHash: feltText.parse((row as Columns)['o_block_hash']),
  }),
};

/** The newest transfer of a source, with the hash of its block. */
export function newestTransfer(source: TransferSource, filters: TransferFilters) {
  const sql = `SELECT ${columns}, hex(block_hash) AS o_block_hash ${filtered(source, filters, null)}
    ORDER BY block_desc LIMIT 1`;
  return {
    query: { name: 'transfers.newest', sql, row: transferInBlock },
    params: filterParams([source], filters),
  };
}

/** The positions of a page: a far offset passes over keys, not whole rows. */
export const transferPositions = pageQuery('transfers.positions', positionColumns, positionRow);

function pageQuery<R>(name: string, selected: string, row: RowParser<R>) {
  return (
    sources: readonly TransferSource[],
    filters: TransferFilters,
    read: PageRead,
  ): { query: ChQuery<R>; params: Params } => ({
    query: { name, sql: pageSql(selected, sources, filters, read), row },
    params: {
      ...filterParams(sources, filters),
      ...afterParams(read.after),
      limit: read.limit,
      offset: read.offset,
      reach: read.offset + read.limit,
    },
  });
}

function pageSql(
  selected: string,
  sources: readonly TransferSource[],
  filters: TransferFilters,
  read: PageRead,
): string {
  const way = read.order === 'desc' ? '' : ' DESC';
  const by = (prefix: string, suffix: string): string =>
    ['block', 'position', 'item'].map((name) => `${prefix}${name}${suffix}${way}`).join(', ');
  const selects = sources.map(
    (source) =>
      `SELECT ${distinct(source)}${selected} ${filtered(source, filters, read)} ORDER BY ${by('', '_desc')}`,
  );
  const [only] = selects;
  return selects.length === 1
    ? `${only} LIMIT {limit:UInt32} OFFSET {offset:UInt32}`
    : `SELECT * FROM (${selects.map((select) => `(${select} LIMIT {reach:UInt32})`).join(' UNION ALL ')})
       ORDER BY ${by('o_', '')} LIMIT {limit:UInt32} OFFSET {offset:UInt32}`;
}

const distinct = ({ repeats }: TransferSource): string => (repeats === true ? 'DISTINCT ' : '');

const countRow = z.object({ n: count });

/** Counts matching rows, up to `most`. */
export function transferCount(
  sources: readonly TransferSource[],
  filters: TransferFilters,
  most: number,
): { query: ChQuery<z.infer<typeof countRow>>; params: Params } {
  const all = sources.map(
    (source) =>
      `(SELECT ${distinct(source)}${positionColumns} ${filtered(source, filters, null)} LIMIT {most:UInt32})`,
  );
  const sql = `SELECT count() AS n FROM (SELECT 1 FROM (${all.join(' UNION ALL ')}) LIMIT {most:UInt32})`;
  return {
    query: { name: 'transfers.count', sql, row: countRow },
    params: { ...filterParams(sources, filters), most },
  };
}

const sampleRow = z.object({ seen: z.coerce.number().int(), matching: z.coerce.number().int() });

/** Counts how many of a source's newest rows match the other filters, for an estimate. */
export function transferSample(
  source: TransferSource,
  filters: TransferFilters,
  rows: number,
): { query: ChQuery<z.infer<typeof sampleRow>>; params: Params } {
  const others = rowPredicates(source, filters);
  const matching = others.length === 0 ? '1' : others.join(' AND ');
  return {
    query: {
      name: 'transfers.sample',
      sql: `SELECT count() AS seen, countIf(hit) AS matching FROM (
        SELECT ${matching} AS hit ${filtered(source, { ...filters, felts: {} }, null)}
        ORDER BY block_desc, position_desc, item_desc LIMIT {most:UInt32})`,
      row: sampleRow,
    },
    params: { ...filterParams([source], filters), most: rows },
  };
}

function filtered(
  source: TransferSource,
  filters: TransferFilters,
  read: Pick<PageRead, 'order' | 'after'> | null,
): string {
  return [
    source.sql,
    ...boundConditions(filters),
    ...afterConditions(read),
    ...rowPredicates(source, filters),
  ].join(' AND ');
}

/** The conditions of the filters that a source does not apply itself. */
export function rowPredicates(source: Pick<TransferSource, 'settles'>, { felts }: TransferFilters): string[] {
  return feltFilters
    .filter((name) => felts[name] !== undefined && !source.settles.includes(name))
    .map((name) => predicates[name]);
}

/** Heights as conditions on a key of `transfers`, `account_feed` or `tx_index`. */
function boundConditions({ lo, hi }: TransferFilters): string[] {
  return [
    ...(hi < MAX_HEIGHT ? ['block_desc >= {newest:UInt32}'] : []),
    ...(lo > 0 ? ['block_desc <= {oldest:UInt32}'] : []),
  ];
}

/** The comparison of `block_desc` alone is redundant, but only it finds the granule by the key. */
function afterConditions(read: Pick<PageRead, 'order' | 'after'> | null): string[] {
  if (read === null || read.after === null) return [];
  const [at, beyond] = read.order === 'desc' ? ['>=', '>'] : ['<=', '<'];
  return [
    `block_desc ${at} {after_block:UInt32}`,
    `(block_desc, position_desc, item_desc) ${beyond} ({after_block:UInt32}, {after_position:UInt32}, {after_item:UInt32})`,
  ];
}

export function filterParams(
  sources: readonly { readonly params?: Params }[],
  { felts, lo, hi }: TransferFilters,
): Record<string, unknown> {
  const named = feltFilters.flatMap((name) => {
    const value = felts[name];
    return value === undefined ? [] : [[name, feltHex(value)] as const];
  });
  const own = sources.flatMap(({ params = {} }) => Object.entries(params));
  return { ...Object.fromEntries([...own, ...named]), newest: descending(hi), oldest: descending(lo) };
}

function afterParams(after: TransferPosition | null): Record<string, unknown> {
  if (after === null) return {};
  return {
    after_block: descending(after.block),
    after_position: descending(after.position),
    after_item: descending(after.item),
  };
}

/** All rows of one key prefix, in every version: `FROM … WHERE …`. */
export interface VersionedSource {
  readonly sql: string;
  readonly params?: Params;
  /** The sorting key of the table. */
  readonly key: string;
  /** The first column of the key, where all rows have the same. */
  readonly subject: 'token' | 'account' | null;
  readonly settles: readonly FeltFilter[];
}

/** A transfer with the block it belongs to, and the version of its row. */
export interface VersionedTransfer {
  readonly transfer: StoredTransfer;
  readonly block_hash: Felt;
  readonly seq: number;
  /** The newest version removes the transfer. */
  readonly isDeleted: boolean;
}

/** Of thousands of rows, ClickHouse writes felts faster than they are converted here. */
const versionedColumns = `${transferColumns(feltSql)}, ${feltSql('block_hash')} AS o_block_hash, seq AS o_seq,
  is_deleted AS o_is_deleted`;

/** By hand: the history of a stream is nothing but these rows, and a schema took a third of its time. */
const versionedRow: RowParser<VersionedTransfer> = {
  parse(line) {
    const cells = String(line).split('\t');
    const [token, block, position, item, from, to, kind, amount, tokenId, txhash, ...rest] = cells;
    const [timestamp, fee, feeUnit, isFee, executionStatus, blockHash, seq, isDeleted] = rest;
    return {
      transfer: {
        token: canonicalFelt(token),
        block: descending(uint32Of(numberOf(block))),
        position: descending(uint32Of(numberOf(position))),
        item: descending(uint32Of(numberOf(item))),
        from: canonicalFelt(from),
        to: canonicalFelt(to),
        kind: oneOf(tokenStandards, kind),
        amount: uintOf(amount),
        token_id: uintOf(tokenId),
        txhash: canonicalFelt(txhash),
        timestamp: uint32Of(numberOf(timestamp)),
        fee: uintOf(fee),
        fee_unit: canonicalFelt(feeUnit),
        is_fee: uint32Of(numberOf(isFee)),
        execution_status: oneOf(executionStatuses, executionStatus),
      },
      block_hash: canonicalFelt(blockHash),
      seq: integerOf(numberOf(seq)),
      isDeleted: uint32Of(numberOf(isDeleted)) === 1,
    };
  },
};

/** A transfer of one token, as much of it as a trace shows. */
export interface TracedTransfer {
  readonly from: Felt;
  readonly to: Felt;
  /** Decimal, as is the fee. */
  readonly amount: string;
  readonly txhash: Felt;
  /** Unix seconds. */
  readonly timestamp: number;
  readonly block: number;
  readonly position: number;
  readonly item: number;
  readonly fee: string;
}

export const tracedColumns = `${feltSql('from_address')}, ${feltSql('to_address')}, amount, ${feltSql('tx_hash')}, timestamp,
  ${positionColumns}, fee`;

/** The parser of one trace. An account is in many rows: its text is checked once, and equal ones are the same string. */
export function tracedRow(): RowParser<TracedTransfer> {
  const accounts = new Map<string | undefined, Felt>();
  const accountOf = (text: string | undefined): Felt => {
    const known = accounts.get(text);
    if (known !== undefined) return known;
    const account = canonicalFelt(ownText(text));
    accounts.set(account, account);
    return account;
  };
  return {
    parse(line) {
      const [from, to, amount, txhash, timestamp, block, position, item, fee] = String(line).split('\t');
      return {
        from: accountOf(from),
        to: accountOf(to),
        amount: uintOf(ownText(amount)),
        txhash: canonicalFelt(ownText(txhash)),
        timestamp: uint32Of(numberOf(timestamp)),
        block: descending(uint32Of(numberOf(block))),
        position: descending(uint32Of(numberOf(position))),
        item: descending(uint32Of(numberOf(item))),
        fee: uintOf(ownText(fee)),
      };
    },
  };
}

/** A copy: V8 keeps a whole line in memory as long as a part of it, which doubles what a trace takes. */
const ownText = (text = ''): string => Buffer.from(text, 'latin1').toString('latin1');

const numberOf = (text: string | undefined): unknown =>
  text === undefined || text === '' ? text : Number(text);

/**
 * The newest version of each row between the heights of the filters, in the order of the chain. Versions that delete are
 * among them: they show that a block is being reverted before `indexed_blocks` shows it, which FINAL would hide. So does a row
 * of another fork in the place of one that matches, which therefore need not match.
 *
 * @param read.seqs versions of the indexed blocks from `lo` to `hi`, one for each height
 * @param read.limit rows at most
 */
export function versionedTransfers(
  source: VersionedSource,
  filters: TransferFilters,
  { seqs, limit }: { readonly seqs: readonly number[]; readonly limit: number },
): { query: ChQuery<VersionedTransfer>; params: Params } {
  const others = rowPredicates(source, filters);
  const isNewer = `seq > {seqs:Array(UInt64)}[${ascendingSql('block_desc')} - ${filters.lo} + 1]`;
  const sql = `SELECT ${versionedColumns} FROM (
      SELECT * ${source.sql} AND block_desc BETWEEN {newest:UInt32} AND {oldest:UInt32}
      ORDER BY ${source.key}, seq DESC LIMIT 1 BY ${source.key}
    ) ${others.length === 0 ? '' : `WHERE (${others.join(' AND ')}) OR ${isNewer}`}
    ORDER BY block_desc DESC, position_desc DESC, item_desc DESC LIMIT {limit:UInt32}`;
  return {
    query: { name: 'transfers.versioned', sql, row: versionedRow, isText: true },
    params: { ...filterParams([source], filters), seqs, limit },
  };
}
