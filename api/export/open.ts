import { once } from 'node:events';
import type { Readable } from 'node:stream';

import { isThrowIf } from '../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { sleep } from '../../infra/lifecycle.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { chunkRows, finalHeight } from '../../projections/chain-status/queries.ts';
import { linkedBlocks, newestLinked, settledBlockAt } from '../../projections/indexed-blocks/queries.ts';
import type { LinkedBlock } from '../../projections/indexed-blocks/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import {
  MAX_EXPORT_PRICES,
  exportStatement,
  exportedCount,
  exportedTokens,
  isSettledAbove,
  priceScope,
  rangeState,
} from '../../projections/transfers/queries.ts';
import type { ExportFormat, ExportedToken, TransferExport } from '../../projections/transfers/queries.ts';
import { invalidInput, unavailable } from '../http/errors.ts';
import type { HttpError } from '../http/errors.ts';
import { figure } from '../http/stated-limits.ts';
import { heightsOf } from '../transfers/list.ts';
import type { TransferSearch } from '../transfers/filters.ts';
import { versionedSourceOf } from '../transfers/versioned-source.ts';

export interface ExportReading {
  readonly clickhouse: ClickHouse;
  readonly pool: Sql;
  readonly servedBuilds: () => Promise<ServedBuilds>;
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
}

export interface AskedExport {
  readonly search: TransferSearch;
  readonly format: ExportFormat;
  /** More are rejected. */
  readonly maxPrices?: number;
}

/** An export whose file has begun. */
export interface OpenExport {
  /** The newest block when it began. */
  readonly head: LinkedBlock;
  /** The heights of the file; null: none is indexed yet, or not all are. */
  readonly range: ExportRange | null;
  readonly file: Readable;
  /** Rows of the file; null: each is a line of it. */
  readonly rows: number | null;
}

export interface ExportRange {
  readonly lo: number;
  /** The highest block, also where it has no transfer of the file. */
  readonly last: LinkedBlock;
}

const ATTEMPTS = 10;
const RETRY_MS = 300;
/** Matches no row. */
const NOTHING = { lo: 1, hi: 0 };

/**
 * Begins an export. A statement reads its tables as they are when it begins, so the file has exactly the transfers of
 * the chain that ends with `head`, whatever happens to that chain later, if three conditions hold: the blocks of the
 * range are the same before and after the statement begins, those up to `head` are of one chain, and no row is newer
 * than its block. Otherwise the export begins again. Rows of final blocks are newer only during a repair: these are
 * found when the file reaches them, which breaks it off.
 *
 * @throws 400 for too many prices, 503 while blocks of the range are being reverted or indexed again, or none is
 *   indexed
 */
export async function openExport(reading: ExportReading, asked: AskedExport): Promise<OpenExport> {
  for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
    const opened = await tryOpen(reading, asked);
    if (opened !== null) return opened;
    await sleep(RETRY_MS, reading.signal);
    reading.signal.throwIfAborted();
  }
  throw unavailable('unsettled', 'Blocks of the range are being indexed or reverted.', 2);
}

/** null: the blocks of the range have changed meanwhile. */
async function tryOpen(
  { clickhouse, pool, servedBuilds, signal }: ExportReading,
  { search, format, maxPrices = MAX_EXPORT_PRICES }: AskedExport,
): Promise<OpenExport | null> {
  const served = await servedBuilds();
  const reads = { clickhouse, tables: served };
  const [head] = await newestLinked(clickhouse, served, 1);
  if (head === undefined) throw unavailable('not_indexed', 'No block is indexed yet.', 2);
  const heights = await heightsOf(reads, search);
  const { felts } = search;
  const source = await versionedSourceOf(clickhouse, served, felts);
  const { lo, hi } = heights ?? NOTHING;
  const top = Math.min(hi, head.height);
  const asked: TransferExport = {
    tables: served,
    source: source(served),
    filters: { felts, lo, hi: top },
  };
  const l1Height = await finalHeight(pool, served.schema('chain-status'));
  const [lowest] = await chunkRows(pool, served.schema('chain-status'));
  const state = await rangeState(clickhouse, asked);
  const isWhole = top >= lo && Number(state.blocks) > top - Math.max(lo, lowest?.start ?? 0);
  const isSettled = async (): Promise<boolean> => await isSettledAbove(clickhouse, asked, l1Height ?? -1);
  const isOneChain = async (): Promise<boolean> => {
    // A range that is final is part of every chain.
    const above = top <= (l1Height ?? -1) ? head.height : Math.max(lo, l1Height ?? 0);
    const { block, isSettled: isLinked } = await settledBlockAt(clickhouse, served, head.height, above);
    return isLinked && block?.seq === head.seq;
  };
  if (!(await isSettled()) || !(await isOneChain())) return null;
  const tokens = await tokenTexts(pool, served, await exportedTokens(clickhouse, asked));
  const scope = await priceScope(clickhouse, asked, { tokens, state, maxPrices });
  if (scope === null) throw tooManyPrices(maxPrices);
  try {
    const rows = isLinePerRow(format, tokens) ? null : await exportedCount(clickhouse, asked, state);
    const { statement, params, settings } = exportStatement(asked, {
      format,
      tokens,
      state,
      l1Height,
      scope,
    });
    const file = await clickhouse.file(statement, params, { signal, settings });
    // From here on, the reader of the file handles its errors.
    file.on('error', () => {});
    await once(file, 'readable', { signal });
    // First the rows, then the blocks: a row that the statement found unsettled either still is, or has changed the
    // blocks.
    const wasSettled = await isSettled();
    const isToHead = top === head.height;
    const [last] = isToHead ? [head] : await linkedBlocks(clickhouse, served, { from: top, to: top });
    const after = await rangeState(clickhouse, asked);
    const isSame = after.blocks === state.blocks && after.versions === state.versions;
    if (wasSettled && isSame && (await isOneChain()))
      return { head, range: isWhole && last !== undefined ? { lo, last } : null, file, rows };
    file.destroy();
    return null;
  } catch (error) {
    if (isThrowIf(error)) return null;
    throw error;
  }
}

function tooManyPrices(maxPrices: number): HttpError {
  const text = `The export needs more than ${figure(maxPrices)} prices; ask for a shorter range.`;
  return invalidInput({ non_field_errors: [text] });
}

/** Symbols are the only texts of a file that may contain a line break, which JSON escapes and CSV does not. */
function isLinePerRow(format: ExportFormat, tokens: readonly ExportedToken[]): boolean {
  if (format === 'csv') return !tokens.some(({ symbol }) => symbol.includes('\n'));
  return format === 'ndjson';
}

async function tokenTexts(
  pool: Sql,
  served: ServedBuilds,
  addresses: Parameters<typeof tokensByAddress>[2],
): Promise<ExportedToken[]> {
  const known = await tokensByAddress(pool, served.schema('tokens'), addresses);
  return addresses.map((token) => ({
    token,
    symbol: known.get(token)?.symbol ?? '',
    decimals: known.get(token)?.decimals ?? null,
  }));
}
