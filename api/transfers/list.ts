import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { countedBlock, newestHeightAt } from '../../projections/indexed-blocks/queries.ts';
import { subjectTotals } from '../../projections/transfer-counts/queries.ts';
import type { Subject } from '../../projections/transfer-counts/queries.ts';
import { MAX_HEIGHT, hasUnknownTransfers } from '../../projections/transfers/queries.ts';
import type { StoredTransfer, TransferFilters } from '../../projections/transfers/queries.ts';
import { hasTransaction } from '../../projections/tx-index/queries.ts';
import { REACHABLE_ROWS, countWithPage, cursorEnvelope, envelope, resolvePage } from '../http/envelope.ts';
import type { Envelope, RowCount } from '../http/envelope.ts';
import { invalidInput, invalidPage } from '../http/errors.ts';
import type { PageParameter } from '../http/params.ts';
import type { ServedTables } from '../../projections/served.ts';
import { countForLastPage, countTransfers } from './count.ts';
import { decodeCursor, encodeCursor } from './cursor.ts';
import { searchKeyOf } from './filters.ts';
import type { TransferSearch } from './filters.ts';
import { nothing, pairSideOf, planTransfers, subjectsToCount } from './plan.ts';
import type { Plan } from './plan.ts';
import { readAfter, readByOffset } from './read.ts';
import type { TransferReading } from './read.ts';

const SCAN_ROWS = 20_000;

export interface TransferListDeps {
  readonly clickhouse: ClickHouse;
  readonly tables: ServedTables;
  /** The number of all transfers of a subject; it may be as old as answers that are cached. */
  readonly total: TransferReading['total'];
  /** Rows of one filter that may be read to find those that match the others; 20,000 by default. */
  readonly scanRows?: number;
}

export interface TransferListRequest {
  readonly search: TransferSearch;
  readonly page: PageParameter;
  readonly limit: number;
  readonly cursor: string | undefined;
  /** The query as sent, for the links. */
  readonly query: Readonly<Record<string, string>>;
}

/** One page of transfers, by number or cursor. */
export async function listTransfers(
  deps: TransferListDeps,
  request: TransferListRequest,
): Promise<Envelope<StoredTransfer>> {
  const { search, cursor } = request;
  const searchKey = searchKeyOf(search);
  const position = cursor === undefined ? null : decodeCursor(cursor, searchKey);
  if (cursor !== undefined && position === null) {
    throw invalidInput({ cursor: ['Invalid cursor for these filters and this order.'] });
  }
  const filters = await heightsOf(deps, search);
  const plan = filters === null ? nothing : await planOf(deps, search, position?.carried ?? null);
  const reading: TransferReading = {
    ...deps,
    plan,
    filters: filters ?? { felts: search.felts, lo: 0, hi: 0 },
    order: search.order,
    isFixed: search.asOf !== null,
  };
  return position === null
    ? await pageByNumber(reading, request, searchKey)
    : await pageByCursor(reading, request, searchKey, position);
}

async function pageByNumber(
  reading: TransferReading,
  request: TransferListRequest,
  searchKey: string,
): Promise<Envelope<StoredTransfer>> {
  const { page, limit, query } = request;
  if (page === 'invalid' || (page !== 'last' && page * limit > REACHABLE_ROWS)) throw invalidPage();
  const reads = page === 'last' ? null : rowsByOffset(reading, (page - 1) * limit, limit + 1);
  const whole = reading.plan.isShort && page === 1 ? await reads : null;
  const countRows = page === 'last' ? countForLastPage : countTransfers;
  const [counted, early] = await Promise.all([
    whole !== null && whole.length <= limit ? { count: whole.length, isEstimate: false } : countRows(reading),
    reads,
  ]);
  const count =
    early === null || page === 'last' ? counted : countWithPage(counted, page, limit, early.length);
  const found = resolvePage(page, limit, count.count);
  const rows = early ?? (await rowsByOffset(reading, found.offset, limit + 1));
  return envelope(rows.slice(0, limit), found, {
    query,
    count: count.count,
    countIsEstimate: count.isEstimate,
    nextCursor: nextCursor(rows, limit, reading, count, searchKey),
  });
}

async function pageByCursor(
  reading: TransferReading,
  request: TransferListRequest,
  searchKey: string,
  position: NonNullable<ReturnType<typeof decodeCursor>>,
): Promise<Envelope<StoredTransfer>> {
  const { limit, query } = request;
  const [count, rows] = await Promise.all([
    position.carried ?? countTransfers(reading),
    reading.plan.sources.length === 0 ? [] : readAfter(reading, position.after, limit + 1),
  ]);
  return cursorEnvelope(rows.slice(0, limit), limit, {
    query,
    count: count.count,
    countIsEstimate: count.isEstimate,
    nextCursor: nextCursor(rows, limit, reading, count, searchKey),
  });
}

async function rowsByOffset(
  reading: TransferReading,
  offset: number,
  limit: number,
): Promise<StoredTransfer[]> {
  return reading.plan.sources.length === 0 ? [] : await readByOffset(reading, offset, limit);
}

/** `rows` has one more than the page if there is a next one. The cursor carries a count that is expensive to repeat. */
function nextCursor(
  rows: readonly StoredTransfer[],
  limit: number,
  reading: TransferReading,
  count: RowCount,
  searchKey: string,
): string | null {
  const last = rows[limit - 1];
  if (last === undefined || rows.length <= limit) return null;
  const { block, position, item } = last;
  return encodeCursor(
    { after: { block, position, item }, carried: reading.plan.exact === null ? count : null },
    searchKey,
  );
}

/** Heights and times as one pair of bounds; null for an empty range. */
export async function heightsOf(
  deps: Pick<TransferListDeps, 'clickhouse' | 'tables'>,
  search: TransferSearch,
): Promise<TransferFilters | null> {
  const { clickhouse, tables } = deps;
  const { block, fromBlock, toBlock, startTime, endTime, felts, asOf } = search;
  const [before, until] = await Promise.all([
    startTime === null ? null : newestHeightAt(clickhouse, tables, startTime - 1),
    endTime === null ? MAX_HEIGHT : newestHeightAt(clickhouse, tables, endTime),
  ]);
  if (until === null) return null;
  const lo = Math.max(block ?? 0, fromBlock ?? 0, before === null ? 0 : before + 1);
  const hi = Math.min(block ?? MAX_HEIGHT, toBlock ?? MAX_HEIGHT, asOf?.height ?? MAX_HEIGHT, until);
  return lo > hi ? null : { felts, lo, hi };
}

/** @param carried the number of transfers of the whole answer, if a cursor has it */
async function planOf(
  deps: TransferListDeps,
  search: TransferSearch,
  carried: RowCount | null,
): Promise<Plan> {
  const { clickhouse, tables, scanRows = SCAN_ROWS } = deps;
  const { felts, block, asOf } = search;
  const subjects = subjectsToCount(felts);
  const isBlock = block !== null && Object.keys(felts).length === 0;
  const [totals, searchIsHash, counted] = await Promise.all([
    // Totals as of the block: the choice of rows, and with it an estimated count, must not change with newer transfers.
    subjectTotals(clickhouse, tables, subjects, asOf?.height ?? MAX_HEIGHT),
    felts.search === undefined || felts.txhash !== undefined
      ? false
      : hasTransaction(clickhouse, tables, felts.search),
    isBlock && carried === null ? countedBlock(clickhouse, tables, { height: block }) : null,
  ]);
  const total = ({ kind, felt }: Subject): number =>
    totals[subjects.findIndex((subject) => subject.kind === kind && subject.felt === felt)] ?? 0;
  const isBusyPair = pairSideOf(felts) !== null && totals.every((rows) => rows > scanRows);
  const hasLegs =
    isBusyPair && felts.token !== undefined && !(await hasUnknownTransfers(clickhouse, tables, felts.token));
  return planTransfers(tables, felts, block, {
    total,
    scanRows,
    hasLegs,
    searchIsHash,
    ofBlock: isBlock ? (carried?.count ?? counted?.transfers ?? 0) : 0,
  });
}
