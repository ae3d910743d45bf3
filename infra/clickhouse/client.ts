import { Readable } from 'node:stream';

import { ClickHouseError, ClickHouseLogLevel, createClient } from '@clickhouse/client';
import type { ClickHouseClient } from '@clickhouse/client';
import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';
import { isBareError, isNetworkError } from '../network-errors.ts';
import { encodeRows } from './row-binary.ts';
import type { ColumnSpec, Row } from './row-binary.ts';

export type Settings = Readonly<Record<string, string | number>>;
/** Values of `{name:Type}` parameters; ClickHouse binds them, nothing is put into the text. */
export type Params = Readonly<Record<string, unknown>>;

/** A named statement: its text (made from the tables being served) and the border parser of its rows. */
export interface ChQuery<R> {
  /** Goes to logs, metrics and the server's `log_comment`. */
  readonly name: string;
  readonly sql: string;
  readonly row: z.ZodType<R>;
}

export interface ClickHouse {
  rows<R>(
    query: ChQuery<R>,
    params?: Params,
    options?: { signal?: AbortSignal; settings?: Settings },
  ): Promise<R[]>;
  /** Runs DDL, or `INSERT … SELECT`; resolves when it is done. */
  command(sql: string, options?: { params?: Params; settings?: Settings }): Promise<void>;
  /** Resolves when ClickHouse has acknowledged every row. */
  insert(table: string, columns: readonly ColumnSpec[], rows: readonly Row[]): Promise<void>;
  /** Inserts rows that are already RowBinary in the order of `columns`. */
  insertEncoded(table: string, columns: readonly ColumnSpec[], bytes: Buffer): Promise<void>;
  /** True when it answers. */
  ping(): Promise<boolean>;
  close(): Promise<void>;
}

const BUFFER_BYTES = 1 << 20;
const QUOTED = { output_format_json_quote_64bit_integers: 1 } as const;

/**
 * Creates a client of one server (user, password and database are in its URL). Numbers of 64 bits and more arrive as
 * strings: `JSON.parse` of a bare UInt256 would round it.
 *
 * @param options.timeoutMs limit of one request, the wait for a free connection included
 * @param options.isReader the user may be restricted to `readonly = 1`; then the settings of its profile apply to every read
 */
export function createClickHouse(
  url: string,
  options: { application: string; timeoutMs?: number; connections?: number; isReader?: boolean },
): ClickHouse {
  const { timeoutMs = 120_000 } = options;
  const client = createClient({
    url,
    application: options.application,
    // `attempt` ends a request earlier, and then knows why it ended.
    request_timeout: 2 * timeoutMs,
    max_open_connections: options.connections ?? 10,
    keep_alive: { enabled: true },
    // The client logs to the console; every error reaches the caller anyway.
    log: { level: ClickHouseLogLevel.OFF },
    // The server keeps the start of an answer in memory, so that an error within it has an HTTP status. It must not wait for the
    // end of the query: then it buffers in a file, and with a full disk answers 200 without a row (26.7).
    clickhouse_settings: { buffer_size: String(BUFFER_BYTES) },
  });
  const settingsOf =
    options.isReader === true
      ? readerSettings(onceSuccessful(() => readProfile(client)))
      : async (settings: Settings) => settings;

  const insertEncoded: ClickHouse['insertEncoded'] = async (table, columns, bytes) => {
    const names = columns.map(({ name }) => `\`${name}\``).join(', ');
    await attempt(timeoutMs, null, async (signal) => {
      const result = await client.exec({
        query: `INSERT INTO ${table} (${names}) FORMAT RowBinary`,
        values: Readable.from([bytes], { objectMode: false }),
        clickhouse_settings: { async_insert: 0 },
        abort_signal: signal,
      });
      // The response body is empty; reading it to its end frees the connection.
      for await (const chunk of result.stream) void chunk;
    });
  };

  return {
    async rows(query, params, { signal: caller = null, settings } = {}) {
      const raw = await attempt(timeoutMs, caller, async (signal) => {
        const own = await settingsOf({ ...QUOTED, ...settings, log_comment: query.name });
        const result = await client.query({
          query: query.sql,
          format: 'JSONEachRow',
          ...(own === null ? {} : { clickhouse_settings: { ...own } }),
          ...(params === undefined ? {} : { query_params: { ...params } }),
          abort_signal: signal,
        });
        return await result.json<unknown>();
      });
      return raw.map((row) => query.row.parse(row));
    },
    async command(sql, { params, settings } = {}) {
      await attempt(timeoutMs, null, (signal) =>
        client.command({
          query: sql,
          ...(params === undefined ? {} : { query_params: { ...params } }),
          ...(settings === undefined ? {} : { clickhouse_settings: { ...settings } }),
          abort_signal: signal,
        }),
      );
    },
    async insert(table, columns, rows) {
      if (rows.length > 0) await insertEncoded(table, columns, encodeRows(columns, rows));
    },
    insertEncoded,
    async ping() {
      return (await client.ping({ select: true })).success;
    },
    close: () => client.close(),
  };
}

const QUOTING = Object.keys(QUOTED)[0];
/** ClickHouse does so only for a user whose `readonly` is not 0. */
const CANCELLING = 'cancel_http_readonly_queries_on_client_close';

/** The profile of the API's user. */
interface ReaderProfile {
  /** The user is under `readonly = 1`, and may change no setting. */
  readonly isFixed: boolean;
  /** Bytes of one query; 0: no limit. */
  readonly maxMemory: number;
}

/**
 * The settings of a read as the user may send them: the profile's memory limit stays where it is lower. null: none.
 * A query whose client has gone is cancelled.
 */
function readerSettings(profileOf: () => Promise<ReaderProfile>) {
  return async (settings: Settings): Promise<Settings | null> => {
    const { isFixed, maxMemory } = await profileOf();
    if (isFixed) return null;
    const own = { ...settings, [CANCELLING]: 1 };
    const isHigher = maxMemory > 0 && Number(settings['max_memory_usage'] ?? 0) > maxMemory;
    return isHigher ? { ...own, max_memory_usage: maxMemory } : own;
  };
}

/** @throws `CONFIG_INVALID` when numbers of 64 bits would arrive unquoted, and so rounded */
async function readProfile(client: ClickHouseClient): Promise<ReaderProfile> {
  const result = await client.query({
    query: `SELECT toUInt8(getSetting('readonly') = 1) AS fixed, toUInt8(getSetting('${QUOTING}')) AS quoting,
      toString(getSetting('max_memory_usage')) AS memory`,
    format: 'JSONEachRow',
  });
  const [row] = profileRows.parse(await result.json());
  if (row === undefined) throw unavailable('ClickHouse did not return its settings', null);
  if (row.fixed === 1 && row.quoting === 0) {
    throw new AppError(
      'CONFIG_INVALID',
      `The ClickHouse user of the API has readonly = 1: set ${QUOTING} = 1 in its profile`,
    );
  }
  return { isFixed: row.fixed === 1, maxMemory: Number(row.memory) };
}

const profileRows = z.array(z.object({ fixed: z.number(), quoting: z.number(), memory: z.string() }));

/** Runs `work` until it has succeeded once; then its result is returned. */
function onceSuccessful<T>(work: () => Promise<T>): () => Promise<T> {
  let result: Promise<T> | null = null;
  return async () => {
    const running = (result ??= work());
    try {
      return await running;
    } catch (error) {
      if (result === running) result = null;
      throw error;
    }
  };
}

/**
 * Runs one request of the client. A request that took too long, and a response that is not ClickHouse's, become
 * `STORE_UNAVAILABLE`: the client reports them as bare errors.
 */
async function attempt<T>(
  timeoutMs: number,
  caller: AbortSignal | null,
  request: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const deadline = new AbortController();
  const timer = setTimeout(() => deadline.abort(), timeoutMs);
  try {
    return await request(caller === null ? deadline.signal : AbortSignal.any([caller, deadline.signal]));
  } catch (error) {
    if (deadline.signal.aborted) throw unavailable(`ClickHouse did not answer within ${timeoutMs} ms`, error);
    if (caller?.aborted !== true && isBareError(error)) {
      throw unavailable('The response is not from ClickHouse, or is cut off', error);
    }
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

function unavailable(message: string, cause: unknown): AppError {
  return new AppError('STORE_UNAVAILABLE', message, { retryable: true, cause, details: { store: STORE } });
}

const STORE = 'ClickHouse';

/** Exceptions of ClickHouse that pass without a change of the query. */
const RETRYABLE_CODES: ReadonlySet<string> = new Set([
  '75', // CANNOT_WRITE_TO_FILE_DESCRIPTOR
  '159', // TIMEOUT_EXCEEDED
  '202', // TOO_MANY_SIMULTANEOUS_QUERIES
  '203', // NO_FREE_CONNECTION
  '209', // SOCKET_TIMEOUT
  '210', // NETWORK_ERROR
  '225', // NO_ZOOKEEPER
  '236', // ABORTED: the server is stopping
  '241', // MEMORY_LIMIT_EXCEEDED
  '242', // TABLE_IS_READ_ONLY: the replica has lost Keeper
  '243', // NOT_ENOUGH_SPACE
  '252', // TOO_MANY_PARTS
  '279', // ALL_CONNECTION_TRIES_FAILED
  '285', // TOO_FEW_LIVE_REPLICAS
  '319', // UNKNOWN_STATUS_OF_INSERT
  '439', // CANNOT_SCHEDULE_TASK
  '999', // KEEPER_EXCEPTION
]);

/** True where another attempt can help: no answer, a broken connection, or a server that is overloaded or out of space. */
export function isClickHouseUnavailable(error: unknown): boolean {
  if (error instanceof ClickHouseError) return RETRYABLE_CODES.has(error.code);
  if (error instanceof AppError)
    return error.code === 'STORE_UNAVAILABLE' && error.details['store'] === STORE;
  return isNetworkError(error);
}
