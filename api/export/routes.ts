import { randomUUID } from 'node:crypto';

import { z } from 'zod';

import type { Logger } from '../../infra/log.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { MAX_EXPORT_PRICES, MAX_RANGE_PRICES, PRICES_OF_HOUR } from '../../projections/transfers/queries.ts';
import { exportRecord } from '../../schemas/api/exports.ts';
import { readClasses } from '../http/clickhouse.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { invalidInput, orNotFound, refuseParameters } from '../http/errors.ts';
import { WANTED_READING_BYTES } from '../http/sending-limits.ts';
import { ROWS_PER_CORE } from '../http/pacing.ts';
import { StreamedAnswer, defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { figure, readLimit } from '../http/stated-limits.ts';
import { resolveSearch, transfersQuery } from '../transfers/filters.ts';
import type { TransferSearch } from '../transfers/filters.ts';
import { CURSOR_HEADER, encodeCursor, streamDigest } from '../stream/cursor.ts';
import { codingOf, exportBody } from './body.ts';
import type { Coding, FileSummary } from './body.ts';
import { openExport } from './open.ts';
import type { ExportRange } from './open.ts';
import type { ExportRecords } from './records.ts';

export interface ExportRouteDeps {
  readonly clickhouseFor: ClickHouseFor;
  readonly servedBuilds: () => Promise<ServedBuilds>;
  readonly exports: ExportRecords;
  readonly log: Logger;
}

const mediaTypes = {
  csv: 'text/csv',
  ndjson: 'application/x-ndjson',
  parquet: 'application/vnd.apache.parquet',
  arrow: 'application/vnd.apache.arrow.stream',
} as const;

const filters = ['token', 'account', 'from_account', 'to_account'] as const;
/** Parameters of `/api/transfers/` that an export would have to ignore. */
const notTaken = { search: true, order: true, page: true, limit: true, cursor: true } as const;
const exportQuery = transfersQuery.omit(notTaken);
const exportParams = z.object({
  format: z
    .enum(['csv', 'ndjson', 'parquet', 'arrow'])
    .meta({ description: '`arrow` is the IPC stream format' }),
});

const exportAnswer = new StreamedAnswer(
  {
    [mediaTypes.csv]: 'A line of names, then a line for each transfer',
    [mediaTypes.ndjson]: 'A JSON object in a line for each transfer',
    [mediaTypes.parquet]: 'A Parquet file',
    [mediaTypes.arrow]: 'A stream of Arrow record batches',
  },
  {
    request: {
      TE: '`trailers`: the file ends with the trailers `X-Export-Rows` and `X-Export-SHA256`',
      'Accept-Encoding': '`zstd` or `gzip`',
    },
    response: {
      'X-Export-Block': 'Height of the newest block when the export began',
      'X-Export-Block-Hash': 'Hash of that block',
      'X-Export-Id': 'The `id` for `/api/export/{id}.json`',
      [CURSOR_HEADER]: 'Cursor from which a stream with the same filters continues after the file',
    },
  },
);

export function exportRoutes(deps: ExportRouteDeps): Route[] {
  return [transfersRoute(deps), recordRoute(deps)];
}

function transfersRoute({ clickhouseFor, exports, log, ...deps }: ExportRouteDeps): Route {
  return defineRoute({
    id: 'exportTransfers',
    method: 'GET',
    path: '/api/export/transfers.{format}',
    summary: 'Export transfers',
    description: [
      'Returns all transfers that match the filters in one file, lowest block first, then by position of the event and item of a',
      `batch. At least one of ${filters.map((name) => `\`${name}\``).join(', ')} is required, or a range: \`from_block\` and`,
      '`to_block`, or `start_time` and `end_time`. The file reflects the chain up to the block in `X-Export-Block` and',
      '`X-Export-Block-Hash`; blocks that are indexed or reverted while it is sent do not change it. It is compressed with zstd or',
      'gzip if `Accept-Encoding` allows it. With `TE: trailers` it ends with the trailers `X-Export-Rows` and `X-Export-SHA256`;',
      '`/api/export/{id}.json` returns the same two values for the id in `X-Export-Id`. If the export fails, the connection breaks',
      `before the end of the file. One export of a user runs at a time. \`${CURSOR_HEADER}\` is the cursor from which a stream with the`,
      'same filters continues after the file; that stream first sends `undo` if the chain has changed since. The header is absent with',
      '`txhash`, and if not all blocks of the range are indexed: the file then lacks the transfers of blocks that are missing in',
      '`/api/indexer/progress/`, as during a backfill.',
    ].join(' '),
    tag: 'Exports',
    auth: 'key',
    asOf: 'Use `to_block`.',
    params: exportParams,
    query: exportQuery,
    limits: [
      readLimit('export'),
      `Transfers per second of all exports in an API process, while it reads pages: \`EXPORT_RATE\` of the operator, by default ${figure(ROWS_PER_CORE)} for each core`,
      `Prices that an export may need: ${figure(MAX_EXPORT_PRICES)} (400). If its tokens have at most ${figure(MAX_RANGE_PRICES)} prices in its range, it always fits; otherwise each hour of a token counts: with transfers, its prices plus ${PRICES_OF_HOUR}; without, 1`,
      `Minutes until a file must have begun, including the sorting of a range without a filter (503): ${readClasses.export.readMs / 60_000}`,
      `Minutes until an export that is still being sent breaks off: ${readClasses.export.timeoutMs / 60_000}`,
      'Seconds until a client that takes nothing is disconnected: 60',
      `Bytes per second that a client must take while others wait for its slot: ${figure(WANTED_READING_BYTES)}`,
    ],
    response: {
      200: exportAnswer,
    },
    errors: [503],
    async handler({ input: { params, query }, request, key, pool }) {
      const { format } = params;
      refuseParameters(request.query, Object.keys(notTaken), 'Exports do not take this parameter.');
      const mediaType = mediaTypes[format];
      const search = resolveSearch(query, assertBounded);
      const coding = codingOf(request.header('accept-encoding'));
      const headers = headersOf(coding);
      // It begins no export, so that it has no block and no id either.
      if (request.isHead) return { status: 200, headers, body: { mediaType, stream: null } };
      const clickhouse = clickhouseFor(request, { readClass: 'export' });
      const opening = { ...deps, clickhouse, pool, signal: request.signal };
      const { head, range, file, rows } = await openExport(opening, { search, format });
      const id = randomUUID();
      const record = { id, format, block: head.height, block_hash: head.hash };
      await exports.save(key.userId, { ...record, rows: null, sha256: null, bytes: null, complete: false });
      let whole: FileSummary | null = null;
      const stream = exportBody({
        file,
        format,
        rows,
        coding,
        async onEnd(summary) {
          await exports.save(key.userId, { ...record, ...summary, complete: true });
          whole = summary;
        },
      });
      stream.once('error', (error) => log.warn({ err: error, export_id: id }, 'export broken off'));
      const trailing = trailersFor(request.header('te'), () => whole);
      return {
        status: 200,
        headers: {
          ...headers,
          'X-Export-Block': String(head.height),
          'X-Export-Block-Hash': head.hash,
          'X-Export-Id': id,
          ...cursorHeader(search, range),
          ...trailing.headers,
        },
        body: { mediaType, stream, ...trailing.body },
      };
    },
  });
}

/** The cursor after the file for a stream with the same filters; none where a stream cannot have them, or blocks are missing. */
function cursorHeader(
  { felts }: TransferSearch,
  range: ExportRange | null,
): Readonly<Record<string, string>> {
  if (range === null || felts.txhash !== undefined) return {};
  const { height, hash, seq } = range.last;
  const position = { last: { height, hash }, within: null, next: height + 1, final: null, floor: range.lo };
  return { [CURSOR_HEADER]: encodeCursor(position, streamDigest(felts, false), 'block', seq) };
}

function headersOf(coding: Coding): Readonly<Record<string, string>> {
  return { Vary: 'Accept-Encoding', ...(coding === 'identity' ? {} : { 'Content-Encoding': coding }) };
}

/**
 * If the client accepts trailers: the header that names them, and the function that returns them at the end of the
 * file.
 */
function trailersFor(te: string, whole: () => FileSummary | null) {
  if (!/(?:^|,)\s*trailers\s*(?:,|;|$)/i.test(te)) return { headers: {}, body: {} };
  return {
    headers: { Trailer: 'X-Export-Rows, X-Export-SHA256' },
    body: { trailers: () => trailersOf(whole()) },
  };
}

function trailersOf(whole: FileSummary | null): Readonly<Record<string, string>> {
  return whole === null ? {} : { 'X-Export-Rows': String(whole.rows), 'X-Export-SHA256': whole.sha256 };
}

/** @throws 400 unless one of the filters or both ends of a range are given */
function assertBounded({ felts, fromBlock, toBlock, startTime, endTime }: TransferSearch): void {
  const isFiltered = (['token', 'account', 'from', 'to'] as const).some((name) => felts[name] !== undefined);
  const isRange = (fromBlock !== null && toBlock !== null) || (startTime !== null && endTime !== null);
  if (isFiltered || isRange) return;
  throw invalidInput(
    {
      non_field_errors: [
        `One of ${filters.join(', ')} is required, or from_block and to_block, or start_time and end_time.`,
      ],
    },
    { allowed_filters: [...filters] },
  );
}

function recordRoute({ exports }: ExportRouteDeps): Route {
  return defineRoute({
    id: 'getExport',
    method: 'GET',
    path: '/api/export/{id}.json',
    summary: 'Get the state of an export',
    description:
      'Returns the state of an export that the same user began in the last hour. `complete` is false while the file is sent, and remains false if the export failed. A complete file can still lack blocks that were not indexed.',
    tag: 'Exports',
    auth: 'key',
    params: z.object({ id: z.uuid().meta({ description: '`X-Export-Id` of the export' }) }),
    response: { 200: exportRecord },
    async handler({ input: { params }, key }) {
      return { status: 200, body: orNotFound(await exports.find(key.userId, params.id)) };
    },
  });
}
