import { z } from 'zod';

import type { ChQuery, Params } from '../infra/clickhouse/client.ts';
import { isFelt } from '../schemas/felt.ts';
import type { Felt } from '../schemas/felt.ts';
import { tokenStandard, uint } from '../schemas/messages/common.ts';

/**
 * Reading transfers: what the queries over `transfers` and `account_feed` share. Both hold whole rows, newest first in
 * their keys, so a page is one read in the order of a key, or a merge of a few.
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

/** Where a transfer lies in the chain; newest first is each descending. */
export interface TransferPosition {
  readonly block: number;
  readonly position: number;
  readonly item: number;
}

export type TransferOrder = 'desc' | 'asc';

/** Rows of one table by a prefix of its key: `FROM … FINAL WHERE …`, and the filter that this already settles. */
export interface TransferSource {
  readonly sql: string;
  readonly settles: FeltFilter | null;
}

/** Highest height there can be; `lo` 0 and `hi` this are no bounds. */
export const MAX_HEIGHT = 0xffff_fffe;
const MAX_UINT32 = 0xffff_ffff;

/** A felt parameter as the key stores it. Given in hex, so that no byte of it can be read as text. */
export function feltParam(name: string): string {
  return `toFixedString(unhex({${name}:String}), 32)`;
}

/** What `feltParam` takes. */
export function feltHex(felt: Felt): string {
  return felt.slice(2);
}

const felt = z.custom<Felt>((value) => typeof value === 'string' && isFelt(value), 'not a canonical felt');
const uint32 = z.int().min(0).max(MAX_UINT32);

const transfer = z.object({
  token: felt,
  block: uint32,
  position: uint32,
  item: uint32,
  from: felt,
  to: felt,
  kind: tokenStandard,
  amount: uint,
  token_id: uint,
  txhash: felt,
  timestamp: uint32,
  fee: uint,
  fee_unit: felt,
  is_fee: uint32,
  execution_status: z.enum(['SUCCEEDED', 'REVERTED']),
});
/** One stored transfer. Amounts are decimal strings; `token_id` is "0" where the kind has none. */
export type StoredTransfer = z.infer<typeof transfer>;

/**
 * Names of their own, never a column's: ClickHouse would take `token` in a WHERE for the alias. Renamed outside.
 * 256-bit integers leave as text: a JSON number would round them.
 */
const inner = `lower(hex(token)) AS o_token, block_desc AS o_block, position_desc AS o_position, item_desc AS o_item,
  lower(hex(from_address)) AS o_from, lower(hex(to_address)) AS o_to, kind AS o_kind, toString(amount) AS o_amount,
  toString(token_id) AS o_token_id, lower(hex(tx_hash)) AS o_txhash, timestamp AS o_timestamp, toString(fee) AS o_fee,
  lower(hex(fee_unit)) AS o_fee_unit, is_fee AS o_is_fee, execution_status AS o_execution_status`;

const outer = `concat('0x', o_token) AS token, toUInt32(${MAX_UINT32} - o_block) AS block,
  toUInt32(${MAX_UINT32} - o_position) AS position, toUInt32(${MAX_UINT32} - o_item) AS item,
  concat('0x', o_from) AS from, concat('0x', o_to) AS to, o_kind AS kind, o_amount AS amount,
  o_token_id AS token_id, concat('0x', o_txhash) AS txhash, o_timestamp AS timestamp, o_fee AS fee,
  concat('0x', o_fee_unit) AS fee_unit, o_is_fee AS is_fee, o_execution_status AS execution_status`;

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
  /** Only what comes after this one in the order. */
  readonly after: TransferPosition | null;
  readonly offset: number;
  readonly limit: number;
}

/** A page over one or several sources that share no row, in the order asked for. */
export function transferPage(
  sources: readonly TransferSource[],
  filters: TransferFilters,
  read: PageRead,
): { query: ChQuery<StoredTransfer>; params: Params } {
  const way = read.order === 'desc' ? '' : ' DESC';
  const by = (prefix: string, suffix: string): string =>
    ['block', 'position', 'item'].map((name) => `${prefix}${name}${suffix}${way}`).join(', ');
  const selects = sources.map(
    (source) => `SELECT ${inner} ${filtered(source, filters, read)} ORDER BY ${by('', '_desc')}`,
  );
  const [only] = selects;
  const rows =
    selects.length === 1
      ? `${only} LIMIT {limit:UInt32} OFFSET {offset:UInt32}`
      : `SELECT * FROM (${selects.map((select) => `(${select} LIMIT {reach:UInt32})`).join(' UNION ALL ')})
         ORDER BY ${by('o_', '')} LIMIT {limit:UInt32} OFFSET {offset:UInt32}`;
  return {
    query: {
      name: 'transfers.page',
      sql: `SELECT ${outer} FROM (${rows}) ORDER BY ${by('o_', '')}`,
      row: transfer,
    },
    params: {
      ...filterParams(filters),
      ...afterParams(read.after),
      limit: read.limit,
      offset: read.offset,
      reach: read.offset + read.limit,
    },
  };
}

const countRow = z.object({ n: z.coerce.number().int().min(0) });

/** How many rows match, counted no further than `most`. */
export function transferCount(
  sources: readonly TransferSource[],
  filters: TransferFilters,
  most: number,
): { query: ChQuery<z.infer<typeof countRow>>; params: Params } {
  const all = sources.map(
    (source) => `(SELECT 1 AS one ${filtered(source, filters, null)} LIMIT {most:UInt32})`,
  );
  const sql = `SELECT count() AS n FROM (SELECT one FROM (${all.join(' UNION ALL ')}) LIMIT {most:UInt32})`;
  return {
    query: { name: 'transfers.count', sql, row: countRow },
    params: { ...filterParams(filters), most },
  };
}

const sampleRow = z.object({ seen: z.coerce.number().int(), matching: z.coerce.number().int() });

/** How many of a source's newest rows match the other filters: what an estimate rests on. */
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
    params: { ...filterParams(filters), most: rows },
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

function rowPredicates(source: TransferSource, { felts }: TransferFilters): string[] {
  return feltFilters
    .filter((name) => felts[name] !== undefined && name !== source.settles)
    .map((name) => predicates[name]);
}

/** Heights as conditions on a key of `transfers`, `account_feed` or `tx_index`. */
function boundConditions({ lo, hi }: TransferFilters): string[] {
  return [
    ...(hi < MAX_HEIGHT ? ['block_desc >= {newest:UInt32}'] : []),
    ...(lo > 0 ? ['block_desc <= {oldest:UInt32}'] : []),
  ];
}

/** The plain comparison beside that of the tuple is redundant; it is the one that finds the granule by the key. */
function afterConditions(read: Pick<PageRead, 'order' | 'after'> | null): string[] {
  if (read === null || read.after === null) return [];
  const [at, beyond] = read.order === 'desc' ? ['>=', '>'] : ['<=', '<'];
  return [
    `block_desc ${at} {after_block:UInt32}`,
    `(block_desc, position_desc, item_desc) ${beyond} ({after_block:UInt32}, {after_position:UInt32}, {after_item:UInt32})`,
  ];
}

function filterParams({ felts, lo, hi }: TransferFilters): Record<string, unknown> {
  const named = feltFilters.flatMap((name) => {
    const value = felts[name];
    return value === undefined ? [] : [[name, feltHex(value)] as const];
  });
  return { ...Object.fromEntries(named), newest: MAX_UINT32 - hi, oldest: MAX_UINT32 - lo };
}

function afterParams(after: TransferPosition | null): Record<string, unknown> {
  if (after === null) return {};
  return {
    after_block: MAX_UINT32 - after.block,
    after_position: MAX_UINT32 - after.position,
    after_item: MAX_UINT32 - after.item,
  };
}
