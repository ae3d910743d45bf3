import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { sleep } from '../../infra/lifecycle.ts';
import { findRows } from '../../projections/transfer-counts/queries.ts';
import type { Subject } from '../../projections/transfer-counts/queries.ts';
import {
  transferCount,
  transferPage,
  transferPositions,
  transfersAt,
} from '../../projections/transfers/queries.ts';
import type {
  PageRead,
  StoredTransfer,
  TransferFilters,
  TransferOrder,
  TransferPosition,
  TransferSource,
} from '../../projections/transfers/queries.ts';
import type { ServedTables } from '../../projections/served.ts';
import type { Plan } from './plan.ts';

/** The stores, search and plan of one request. */
export interface TransferReading {
  readonly clickhouse: ClickHouse;
  readonly tables: ServedTables;
  readonly total: (subject: Subject) => Promise<number>;
  readonly plan: Plan;
  readonly filters: TransferFilters;
  readonly order: TransferOrder;
  /** The answer is as of a block: it must be the same each time. */
  readonly isFixed: boolean;
}

/** Up to this offset a page by number skips rows (10 ms for 10,000); deeper pages are located by the counts. */
const SHALLOW_ROWS = 1000;

/**
 * Rows of a subject that the first step of an ascending read covers; each further step covers four times as many.
 */
const FIRST_STEP_ROWS = 20_000;

/** Bounds what one read of a step sorts. */
const MAX_STEP_ROWS = 256 * FIRST_STEP_ROWS;

/**
 * By default, ClickHouse 25.8 reads all rows of an account under FINAL as soon as one of them may match. It need not: the only
 * index of these tables that skips rows is of `leg`, which is in the key.
 */
export const SKIPPING = { use_skip_indexes_if_final_exact_mode: 0 } as const;
/** In blocks of the default 65,409 rows a page of 100 out of 1.3 M took 37 ms, in these 18 ms (`SELECT 1`: 9 ms). */
const PAGE_SETTINGS = { ...SKIPPING, max_threads: 1, max_block_size: 2048 } as const;

/** Rows `offset` to `offset + limit` in the requested order. */
export async function readByOffset(
  reading: TransferReading,
  offset: number,
  limit: number,
): Promise<StoredTransfer[]> {
  const { plan, order, filters } = reading;
  if (order === 'desc' && plan.exact !== null && offset + limit <= SHALLOW_ROWS) {
    return await read(reading, filters, { after: null, offset, limit });
  }
  if (plan.exact !== null) return await readByCounts(reading, plan.exact, offset, limit);
  // ClickHouse does not read a key backwards under FINAL: it would scan all matching rows for the lowest.
  if (order === 'asc' && plan.subject !== null) {
    return await readUpwards(reading, plan.subject, { after: null, skip: offset, limit });
  }
  return await readSkipping(reading, filters, offset, limit);
}

/** The rows after a position in the requested order. */
export async function readAfter(
  reading: TransferReading,
  after: TransferPosition,
  limit: number,
): Promise<StoredTransfer[]> {
  const { plan, order, filters } = reading;
  if (order === 'asc' && plan.subject !== null) {
    return await readUpwards(reading, plan.subject, { after, skip: 0, limit });
  }
  return await read(reading, filters, { after, offset: 0, limit });
}

/** A deep or ascending page: the counts show between which heights it lies, and only those are read. */
async function readByCounts(
  reading: TransferReading,
  subject: Subject,
  offset: number,
  limit: number,
): Promise<StoredTransfer[]> {
  const { clickhouse, tables, filters, order } = reading;
  const { found } = await findRows(clickhouse, tables, subject, {
    order,
    lo: filters.lo,
    hi: filters.hi,
    skip: offset,
    need: limit,
  });
  if (found === null) return [];
  const bounds = { ...filters, lo: found.lo, hi: found.hi };
  return await read(reading, bounds, { after: null, offset: found.skip, limit });
}

/** Ascending from a position, or after `skip` rows: reads windows of heights until enough rows match. */
async function readUpwards(
  reading: TransferReading,
  subject: Subject,
  { after, skip, limit }: { after: TransferPosition | null; skip: number; limit: number },
): Promise<StoredTransfer[]> {
  const rows: StoredTransfer[] = [];
  let toSkip = skip;
  for await (const window of windowsUpwards(reading, subject, after, limit)) {
    if (toSkip > 0) {
      const passed = await countUpTo(reading, window, toSkip);
      if (passed < toSkip) {
        toSkip -= passed;
        continue;
      }
    }
    const left = limit - rows.length;
    const more =
      toSkip > 0
        ? await readSkipping(reading, window, toSkip, left)
        : await read(reading, window, { after, offset: 0, limit: left });
    rows.push(...more);
    if (rows.length >= limit) return rows;
    toSkip = 0;
  }
  return rows;
}

/** Windows of heights upwards: the first holds some rows of the subject, each further one four times as many. */
async function* windowsUpwards(
  { clickhouse, tables, plan, filters }: TransferReading,
  subject: Subject,
  after: TransferPosition | null,
  limit: number,
): AsyncGenerator<TransferFilters> {
  let lo = after === null ? filters.lo : Math.max(filters.lo, after.block);
  // The window also covers the rest of the cursor's own block, which the counts do not include.
  let countedFrom = after === null ? lo : Math.max(filters.lo, after.block + 1);
  let need = plan.exact === null ? FIRST_STEP_ROWS : limit;
  for (;;) {
    const { found } =
      countedFrom > filters.hi
        ? { found: null }
        : await findRows(clickhouse, tables, subject, {
            order: 'asc',
            lo: countedFrom,
            hi: filters.hi,
            skip: 0,
            need,
          });
    const isLast = found === null || found.rows < need;
    const hi = isLast ? filters.hi : found.hi;
    if (lo <= hi) yield { ...filters, lo, hi };
    if (isLast || lo > hi) return;
    lo = hi + 1;
    countedFrom = lo;
    need = Math.min(4 * need, MAX_STEP_ROWS);
  }
}

/** Rows `skip` to `skip + limit`: a far page is located by keys alone, then read like one by cursor. */
async function readSkipping(
  reading: TransferReading,
  filters: TransferFilters,
  skip: number,
  limit: number,
): Promise<StoredTransfer[]> {
  if (skip <= SHALLOW_ROWS || reading.plan.positions !== null) {
    return await read(reading, filters, { after: null, offset: skip, limit });
  }
  const page = { after: null, offset: skip - 1, limit: limit + 1 };
  const [after, ...positions] = await readPositions(reading, filters, page);
  const last = positions.at(-1);
  if (after === undefined || last === undefined) return [];
  const [lo, hi] = [Math.min(after.block, last.block), Math.max(after.block, last.block)];
  return await read(reading, { ...filters, lo, hi }, { after, offset: 0, limit });
}

/** Matching rows, counted up to `most`. */
export async function countUpTo(
  reading: TransferReading,
  filters: TransferFilters,
  most: number,
): Promise<number> {
  const { query, params } = transferCount(countableSources(reading.plan), filters, most);
  const settings = { ...SKIPPING, max_threads: 1 };
  const [counted] = await reading.clickhouse.rows(query, params, { settings });
  return counted?.n ?? 0;
}

/** A block is written to the table of positions and to that of rows side by side: for a moment, either has more. */
const ATTEMPTS = 4;
const RETRY_MS = 50;

async function read(
  reading: TransferReading,
  filters: TransferFilters,
  page: Omit<PageRead, 'order'>,
): Promise<StoredTransfer[]> {
  const { plan, tables } = reading;
  for (let attempt = 0; plan.positions !== null && attempt < ATTEMPTS; attempt += 1) {
    if (attempt > 0) await sleep(RETRY_MS);
    const positions = await readPositions(reading, filters, page);
    if (positions.length === 0) return [];
    const at = { after: null, offset: 0, limit: page.limit };
    const rows = await readRows(reading, [transfersAt(tables, positions)], filters, at);
    if (rows.length === positions.length) return rows;
  }
  return await readRows(reading, sourcesOf(plan), filters, page);
}

async function readRows(
  { clickhouse, order }: TransferReading,
  sources: readonly TransferSource[],
  filters: TransferFilters,
  page: Omit<PageRead, 'order'>,
): Promise<StoredTransfer[]> {
  const { query, params } = transferPage(sources, filters, { ...page, order });
  return await clickhouse.rows(query, params, { settings: PAGE_SETTINGS });
}

async function readPositions(
  { clickhouse, plan, order }: TransferReading,
  filters: TransferFilters,
  page: Omit<PageRead, 'order'>,
): Promise<TransferPosition[]> {
  const { query, params } = transferPositions(countableSources(plan), filters, { ...page, order });
  return await clickhouse.rows(query, params, { settings: PAGE_SETTINGS });
}

const sourcesOf = ({ sources }: Plan): TransferSource[] => sources.map(({ source }) => source);

/** The narrowest sources with one key a transfer. */
export function countableSources(plan: Plan): TransferSource[] {
  return plan.positions === null ? sourcesOf(plan) : [plan.positions];
}
