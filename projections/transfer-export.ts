import { z } from 'zod';

import type { FileStatement, Params, RowReader, Settings } from '../infra/clickhouse/client.ts';
import { ZERO_FELT } from '../schemas/felt.ts';
import type { Felt } from '../schemas/felt.ts';
import { EVENT_INDEX_ITEM_FACTOR } from '../schemas/decode/index.ts';
import { MAX_UINT32, descending } from './descending.ts';
import type { ServedTables } from './served.ts';
import { feltHex, feltText, filterParams, rowPredicates } from './transfer-reads.ts';
import type { TransferFilters, VersionedSource } from './transfer-reads.ts';
import { feltSql } from './sql-terms.ts';

/** All transfers of a filter in one statement, in the order of the chain, as a file. */

/** The file formats: ClickHouse's name of each, and about what a transfer takes in it. */
export const exportFormats = {
  csv: { format: 'CSVWithNames', rowBytes: 550 },
  ndjson: { format: 'JSONEachRow', rowBytes: 850 },
  parquet: { format: 'Parquet', rowBytes: 110 },
  arrow: { format: 'ArrowStream', rowBytes: 600 },
} as const;
export type ExportFormat = keyof typeof exportFormats;

/** A token as the rows of an export show it. */
export interface ExportedToken {
  readonly token: Felt;
  readonly symbol: string;
  readonly decimals: number | null;
}

export interface TransferExport {
  readonly tables: ServedTables;
  readonly source: VersionedSource;
  /** `hi` is at most the height of the newest block. */
  readonly filters: TransferFilters;
}

/** The versions of the blocks in a range: equal ones at two moments show that no block was indexed or reverted between. */
const stateRow = z.object({
  blocks: z.string(),
  versions: z.string(),
  /** Of all tokens and accounts. */
  transfers: z.coerce.number().int(),
  /** Unix seconds; 0 without a block. */
  first_time: z.int(),
  last_time: z.int(),
});
export type RangeState = z.infer<typeof stateRow>;

const settings = { max_threads: 1, select_sequential_consistency: 1 } as const;
/**
 * Rows of a range without a token or account are sorted, in files above this. By default ClickHouse takes half of the server's
 * memory first (ratio), and ignores the limit in bytes until then.
 */
const sorting = {
  max_bytes_before_external_sort: 400_000_000,
  max_bytes_ratio_before_external_sort: 0,
} as const;
/** Likewise the hours of a range are grouped. */
const grouping = {
  max_bytes_before_external_group_by: 400_000_000,
  max_bytes_ratio_before_external_group_by: 0,
} as const;
const heights = 'block_desc BETWEEN {newest:UInt32} AND {oldest:UInt32}';
const bounds = ({ lo, hi }: TransferFilters): Params => ({ newest: descending(hi), oldest: descending(lo) });

export async function rangeState(
  clickhouse: RowReader,
  { tables, filters }: TransferExport,
): Promise<RangeState> {
  const sql = `SELECT toString(count()) AS blocks, toString(sum(cityHash64(block_desc, seq))) AS versions,
      sum(transfers) AS transfers, min(timestamp) AS first_time, max(timestamp) AS last_time
    FROM ${tables.table('indexed_blocks')} FINAL WHERE ${heights}`;
  const query = { name: 'export.state', sql, row: stateRow };
  const [row] = await clickhouse.rows(query, bounds(filters), { settings });
  return row ?? { blocks: '0', versions: '0', transfers: 0, first_time: 0, last_time: 0 };
}

/** The tokens and times that rows of an export may have. */
function tokensAndTimes({ tables, source }: TransferExport): string {
  if (source.settles.length > 0) return `${source.sql} AND ${heights}`;
  const blocks = `${tables.table('indexed_blocks')} FINAL WHERE ${heights}`;
  return `FROM (SELECT arrayJoin(tokens) AS token, timestamp FROM ${blocks}) WHERE true`;
}

const tokenRow = z.object({ o_token: feltText });

/** The tokens that an export may have. */
export async function exportedTokens(clickhouse: RowReader, asked: TransferExport): Promise<Felt[]> {
  const { source, filters } = asked;
  const { token } = filters.felts;
  if (token !== undefined) return [token];
  const query = {
    name: 'export.tokens',
    sql: `SELECT DISTINCT hex(token) AS o_token ${tokensAndTimes(asked)}`,
    row: tokenRow,
  };
  const params = filterParams([source], filters);
  const rows = await clickhouse.rows(query, params, { settings: { ...settings, max_result_rows: 0 } });
  return rows.map(({ o_token }) => o_token);
}

const PLACE = ['block_desc', 'position_desc', 'item_desc'];
const backwards = (columns: readonly string[]): string =>
  columns.map((column) => `${column} DESC`).join(', ');
/** Tells the blocks of one height apart: the join holds it, not the whole hash, of every block. */
const shortHash = (hash: string): string => `cityHash64(${hash})`;

/**
 * The newest version of each row, in the order of the chain, with the block that is indexed at its height. The key is read
 * backwards, and its equal rows are neighbours, so that no set of rows is held in memory; only without a token or an account are
 * the rows sorted. `is_unsettled`: the row is of a version that its block does not have yet, because that is just being reverted
 * or indexed again; the other filters do not apply to it.
 */
function settledRows({ tables, source, filters }: TransferExport): string {
  const versions = `${source.sql} AND ${heights}`;
  // ClickHouse compares neighbours only by a prefix of the key of the table.
  const key = [source.subject ?? 'token', ...PLACE];
  const newest = `SELECT * ${versions} ORDER BY ${backwards([...key, 'seq'])} LIMIT 1 BY ${key.join(', ')}`;
  const inOrder = source.subject === null ? `SELECT * FROM (${newest}) ORDER BY ${backwards(PLACE)}` : newest;
  const conditions = [
    'r.is_deleted = 0',
    `${shortHash('r.block_hash')} = b.short_hash`,
    ...rowPredicates(source, filters),
  ];
  // The join of one block to a row takes less memory than that of any number.
  return `SELECT r.*, r.seq > b.seq AS is_unsettled, toUInt64(r.timestamp) * 1000 AS time FROM (
        ${inOrder}
      ) AS r SEMI LEFT JOIN (
        SELECT block_desc, ${shortHash('block_hash')} AS short_hash, seq FROM ${tables.table('indexed_blocks')} FINAL
        WHERE ${heights} AND block_desc IN (SELECT block_desc ${versions})
      ) AS b ON r.block_desc = b.block_desc
      WHERE r.seq > b.seq OR (${conditions.join(' AND ')})`;
}

/** The message of the exception when a row is unsettled. */
const UNSETTLED = 'a block is being reverted or indexed again';
const throwIfUnsettled = `throwIf(is_unsettled, '${UNSETTLED}')`;

const countRow = z.object({ n: z.coerce.number().int() });

/**
 * The rows of an export.
 *
 * @param state of its range
 * @throws ClickHouseError 395 when a block of the range is being reverted or indexed again
 */
export async function exportedCount(
  clickhouse: RowReader,
  asked: TransferExport,
  state: RangeState,
): Promise<number> {
  if (Object.keys(asked.filters.felts).length === 0) return state.transfers;
  const sql = `SELECT countIf(${throwIfUnsettled} = 0) AS n FROM (${settledRows(asked)})`;
  const query = { name: 'export.count', sql, row: countRow };
  const [row] = await clickhouse.rows(query, filterParams([asked.source], asked.filters), {
    settings: { ...settings, ...sorting },
  });
  return row?.n ?? 0;
}

/** Whether no row above a height is of a version that its block does not have yet. Reads two columns, in any order. */
export async function isSettledAbove(
  clickhouse: RowReader,
  { tables, source, filters }: TransferExport,
  height: number,
): Promise<boolean> {
  const sql = `SELECT count() AS n
    FROM (SELECT block_desc, seq ${source.sql} AND ${heights}) AS r
    INNER JOIN (SELECT block_desc, seq FROM ${tables.table('indexed_blocks')} FINAL WHERE ${heights}) AS b
      ON r.block_desc = b.block_desc
    WHERE r.seq > b.seq`;
  const query = { name: 'export.unsettled', sql, row: countRow };
  const above = { ...filters, lo: Math.max(filters.lo, height + 1) };
  const [row] = await clickhouse.rows(query, filterParams([source], above), { settings });
  return row?.n === 0;
}

const IS_NFT = `t.kind IN ('erc721', 'erc1155')`;

/**
 * What the columns hold, by name. Amounts are text: no reader of these formats has integers of 256 bits. A number of JSON
 * that is a Decimal is never quoted, and text of CSV has a timestamp as the API gives it.
 */
function exportColumns(
  format: ExportFormat,
  l1Height: number | null,
  parts: number,
): (readonly [name: string, sql: string])[] {
  const isText = format === 'csv' || format === 'ndjson';
  const integer = (sql: string): string => (isText ? `toDecimal64(${sql}, 0)` : `toInt64(${sql})`);
  const ascending = (column: string): string => `toInt64(${MAX_UINT32} - t.${column})`;
  const seconds = `toDateTime(t.timestamp, 'UTC')`;
  const decimals = `transform(hex(t.token), ${joined(parts, 'tokens')}, ${joined(parts, 'decimals')}, toInt16(-1))`;
  return [
    ['block', integer(`${ascending('block_desc')} + ${throwIfUnsettled}`)],
    ['block_hash', feltSql('t.block_hash')],
    [
      'timestamp',
      isText ? `formatDateTime(${seconds}, '%Y-%m-%dT%H:%i:%SZ')` : `toDateTime64(${seconds}, 3, 'UTC')`,
    ],
    ['txhash', feltSql('t.tx_hash')],
    [
      'event_index',
      integer(`${ascending('item_desc')} * ${EVENT_INDEX_ITEM_FACTOR} + ${ascending('position_desc')}`),
    ],
    ['token_address', feltSql('t.token')],
    ['token_symbol', `transform(hex(t.token), ${joined(parts, 'tokens')}, ${joined(parts, 'symbols')}, '')`],
    ['token_decimals', `multiIf(${decimals} >= 0, ${decimals}, ${IS_NFT}, toInt16(0), NULL)`],
    ['kind', 'CAST(t.kind AS String)'],
    ['from_address', feltSql('t.from_address')],
    ['to_address', feltSql('t.to_address')],
    ['value', 'toString(t.amount)'],
    ['value_float', 'toFloat64(t.amount) / exp10(token_decimals)'],
    ['nft_token_id', `if(${IS_NFT}, toString(t.token_id), '')`],
    ['is_fee', 'CAST(t.is_fee AS Bool)'],
    ['fee', 'toString(t.fee)'],
    ['fee_unit', feltSql('t.fee_unit')],
    ['execution_status', 'CAST(t.execution_status AS String)'],
    ['finality', `if(t.block_desc >= ${MAX_UINT32 - (l1Height ?? -1)}, 'ACCEPTED_ON_L1', 'ACCEPTED_ON_L2')`],
    ['price_usd', 'p.usd'],
  ];
}

/** Characters of one parameter: ClickHouse takes fields of 128 KiB. */
const PART_CHARS = 60_000;

/** Parameters of the tokens: as many lists of each kind as they need, and at least one. */
function tokenParams(tokens: readonly ExportedToken[]): { parts: number; params: Params } {
  const parts: ExportedToken[][] = [[{ token: ZERO_FELT, symbol: '', decimals: null }]];
  let chars = 0;
  for (const token of tokens) {
    const size = token.token.length + 2 * token.symbol.length + 6;
    if (chars + size > PART_CHARS) {
      parts.push([]);
      chars = 0;
    }
    chars += size;
    parts.at(-1)?.push(token);
  }
  const lists = parts.flatMap((part, i) => [
    [`tokens${i}`, part.map(({ token }) => feltHex(token).toUpperCase())] as const,
    [`symbols${i}`, part.map(({ symbol }) => symbol)] as const,
    [`decimals${i}`, part.map(({ decimals }) => decimals ?? -1)] as const,
  ]);
  return { parts: parts.length, params: Object.fromEntries(lists) };
}

const listTypes = { tokens: 'String', symbols: 'String', decimals: 'Int16' } as const;

/** A list of `tokenParams` as one. */
function joined(parts: number, name: keyof typeof listTypes): string {
  const lists = Array.from({ length: parts }, (_, i) => `{${name}${i}:Array(${listTypes[name]})}`);
  return `arrayConcat(${lists.join(', ')})`;
}

const HOUR_SECONDS = 3600;

/** Hours in which the export may have rows of a token that has prices. */
function pricedHours(asked: TransferExport): string {
  const priced = `token IN (SELECT token FROM ${asked.tables.table('ohlc_hourly')})`;
  return `SELECT token, intDiv(timestamp, ${HOUR_SECONDS}) AS hour ${tokensAndTimes(asked)} AND ${priced}`;
}

const among = (parts: number): string =>
  `token IN (SELECT toFixedString(unhex(arrayJoin(${joined(parts, 'tokens')})), 32))`;

/** Which prices a statement holds in memory: all of the range, or all of the hours in which a token has rows. */
export type PriceScope = 'range' | 'hours';

const IN_RANGE = 'hour BETWEEN {first_hour:UInt32} AND {last_hour:UInt32}';

/**
 * The prices that a row may have: all of the scope, of every other hour of the range the last one, and of each token the newest
 * before the range. No hour is read from both tables: their last prices differ until the hour is recomputed.
 */
function prices(asked: TransferExport, parts: number, scope: PriceScope): string {
  const ofTokens = `FINAL WHERE ${among(parts)} AND`;
  const points = `SELECT token, observed_at, toFloat64OrNull(usd) AS usd FROM ${asked.tables.table('price_points')} ${ofTokens}`;
  const hourly = `${asked.tables.table('ohlc_hourly')} ${ofTokens}`;
  const hours = pricedHours(asked);
  const inRange =
    scope === 'range'
      ? `${points} ${IN_RANGE}`
      : `${points} (token, hour) IN (${hours})
      UNION ALL
      SELECT token, close_at AS observed_at, toFloat64OrNull(close_usd) AS usd FROM ${hourly} ${IN_RANGE} AND (token, hour) NOT IN (${hours})`;
  return `${inRange}
      UNION ALL
      SELECT token, max(close_at) AS observed_at, toFloat64OrNull(argMax(close_usd, hour)) AS usd
      FROM ${hourly} hour < {first_hour:UInt32} GROUP BY token`;
}

const hourParams = ({ first_time: first, last_time: last }: RangeState): Params => ({
  first_hour: Math.floor(first / HOUR_SECONDS),
  last_hour: Math.floor(last / HOUR_SECONDS),
});

/** Prices of one export: ClickHouse holds them in memory, about 80 bytes for each. */
export const MAX_EXPORT_PRICES = 6_000_000;
/** So many are read without looking for the hours that need them. */
export const MAX_RANGE_PRICES = 2_000_000;
/**
 * What an hour in which a token has rows takes in the set of hours, as a number of prices. The set takes 0.3 GB up to
 * 2^21 hours and 0.9 GB above, which this rules out.
 */
export const PRICES_OF_HOUR = 3;

/**
 * The prices that an export holds: all of its range if these are few, because the hours of its rows take another reading of the rows.
 *
 * @param about.maxPrices Infinity: the prices of the hours are held however many they are
 * @returns null: more than `maxPrices`
 */
export async function priceScope(
  clickhouse: RowReader,
  asked: TransferExport,
  {
    tokens,
    state,
    maxPrices,
  }: { readonly tokens: readonly ExportedToken[]; readonly state: RangeState; readonly maxPrices: number },
): Promise<PriceScope | null> {
  const { parts, params } = tokenParams(tokens);
  const inRange = `FROM ${asked.tables.table('ohlc_hourly')} FINAL
    WHERE ${among(parts)} AND ${IN_RANGE}`;
  const inHours = `SELECT sum(if(is_used, points + ${PRICES_OF_HOUR}, 1)) AS n FROM (
      SELECT sum(points) AS points, max(is_used) AS is_used FROM (
        SELECT token, hour, points, 0 AS is_used ${inRange}
        UNION ALL
        SELECT token, hour, 0 AS points, 1 AS is_used FROM (${pricedHours(asked)})
      ) GROUP BY token, hour
    )`;
  const all = { ...filterParams([asked.source], asked.filters), ...params, ...hourParams(state) };
  const count = async (name: string, sql: string): Promise<number> => {
    const [row] = await clickhouse.rows({ name, sql, row: countRow }, all, {
      settings: { ...settings, ...grouping },
    });
    return row?.n ?? 0;
  };
  const ofRange = await count('export.prices', `SELECT sum(points) AS n ${inRange}`);
  if (ofRange <= Math.min(maxPrices, MAX_RANGE_PRICES)) return 'range';
  if (maxPrices === Infinity) return 'hours';
  return (await count('export.hours', inHours)) <= maxPrices ? 'hours' : null;
}

const fileSettings = {
  ...sorting,
  // One thread, and joins that read the transfers row by row: they stay in their order, and are sent as they are read.
  max_threads: 1,
  join_algorithm: 'hash',
  query_plan_join_swap_table: 'false',
  select_sequential_consistency: 1,
  max_result_rows: 0,
  // Off by default before ClickHouse 26.7: of 200 prices, one differs in its last digit (2.53 becomes 2.5300000000000002).
  precise_float_parsing: 1,
  format_csv_null_representation: '',
  // The columns of a group are held in memory.
  output_format_parquet_row_group_size: 100_000,
  // Together half of ClickHouse's CPU time for a file, which is also smaller (55 of 64 MB for 500,000 transfers).
  output_format_parquet_write_bloom_filter: 0,
  output_format_compression_level: 1,
  // Most texts hardly repeat: for a token this takes 10 % less CPU time and 4 % fewer bytes than the default of 1 MiB.
  output_format_parquet_max_dictionary_size: 16_384,
  // The default encoder of 25.8 mixes up the rows of a group (ClickHouse pull request 90126); 26.7 ignores this.
  output_format_parquet_use_custom_encoder: 0,
  // The answer has a content coding, which every reader knows.
  output_format_arrow_compression_method: 'none',
} as const;

/** The statement of an export, without its format. It throws as `exportedCount` does. */
export function exportStatement(
  asked: TransferExport,
  {
    format,
    tokens,
    state,
    l1Height,
    scope,
  }: {
    readonly format: ExportFormat;
    readonly tokens: readonly ExportedToken[];
    readonly state: RangeState;
    readonly l1Height: number | null;
    readonly scope: PriceScope;
  },
): { statement: FileStatement; params: Params; settings: Settings } {
  const { parts, params } = tokenParams(tokens);
  const columns = exportColumns(format, l1Height, parts).map(([name, sql]) => `${sql} AS ${name}`);
  const sql = `SELECT ${columns.join(',\n      ')}
    FROM (${settledRows(asked)}) AS t
    ASOF LEFT JOIN (${prices(asked, parts, scope)}) AS p ON t.token = p.token AND t.time >= p.observed_at`;
  return {
    statement: {
      name: 'export.transfers',
      sql,
      isSorted: asked.source.subject === null,
      ...exportFormats[format],
    },
    params: {
      ...filterParams([asked.source], asked.filters),
      ...params,
      ...hourParams(state),
    },
    settings: fileSettings,
  };
}
