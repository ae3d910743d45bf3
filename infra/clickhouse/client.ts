import { Readable } from 'node:stream';

import { ClickHouseError, ClickHouseLogLevel, createClient } from '@clickhouse/client';
import type { ClickHouseClient } from '@clickhouse/client';
import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';
import { errorCode, isBareError, isNetworkError } from '../network-errors.ts';
import { createYielding, mapYielding } from '../yielding.ts';
import { retry } from '../retry.ts';
import { tableStatement } from './ddl.ts';
import type { Cluster } from './ddl.ts';
import { QUOTED, readerSettings } from './reader-profile.ts';
import { encodeRows } from './row-binary.ts';
import type { ColumnSpec, Row } from './row-binary.ts';
import type { Settings } from './reader-profile.ts';

export type { Settings };

/** Values of `{name:Type}` parameters; ClickHouse binds them, nothing is put into the text. */
export type Params = Readonly<Record<string, unknown>>;

/** A named statement: its text (made from the tables being served) and the border parser of its rows. */
export interface ChQuery<R> {
  /** Goes to logs, metrics and the server's `log_comment`. */
  readonly name: string;
  readonly sql: string;
  readonly row: z.ZodType<R>;
}

export interface ReadOptions {
  /** Cancels the query. */
  readonly signal?: AbortSignal;
  readonly settings?: Settings;
}

export interface ClickHouse {
  rows<R>(query: ChQuery<R>, params?: Params, options?: ReadOptions): Promise<R[]>;
  /**
   * Hands on the rows of a large result as they arrive, some hundred at a time: neither the whole answer is held in memory nor
   * the event loop for longer than one part takes. What `onRows` throws cancels the query.
   */
  eachPart<R>(
    query: ChQuery<R>,
    params: Params | undefined,
    onRows: (rows: readonly R[]) => void,
    options?: ReadOptions,
  ): Promise<void>;
  /** Runs `INSERT … SELECT`, or a mutation; resolves when it is done. */
  command(sql: string, options?: { params?: Params; settings?: Settings }): Promise<void>;
  /**
   * Runs CREATE, DROP or ALTER TABLE on the server, or on every replica of the cluster.
   *
   * @throws `STORE_UNAVAILABLE` naming the replicas on which it failed, or that did not answer
   */
  ddl(sql: string): Promise<void>;
  /** Resolves when every replica of the cluster has all rows of a table. */
  syncReplicas(table: string): Promise<void>;
  /** Resolves when ClickHouse has acknowledged every row. */
  insert(table: string, columns: readonly ColumnSpec[], rows: readonly Row[]): Promise<void>;
  /** Inserts rows that are already RowBinary in the order of `columns`. */
  insertEncoded(table: string, columns: readonly ColumnSpec[], bytes: Buffer): Promise<void>;
  /** True when it answers. */
  ping(): Promise<boolean>;
  close(): Promise<void>;
}

const BUFFER_BYTES = 1 << 20;
/** Limit of a statement on all replicas: creating a table takes some hundred milliseconds. */
const DDL_SECONDS = 20;
/** How long an insert waits for its quorum; a replica fetches the largest batch in a second. */
const QUORUM_MS = 30_000;

interface ClickHouseOptions {
  readonly application: string;
  /** Limit of one request, the wait for a free connection included. */
  readonly timeoutMs?: number;
  readonly connections?: number;
  /**
   * The user only reads, from any replica, and may be restricted to `readonly = 1`; then the settings of its profile apply
   * to every read.
   */
  readonly isReader?: boolean;
  /** null: the server is the only one, or replicates by itself, as ClickHouse Cloud does. */
  readonly cluster?: Cluster | null;
}

/**
 * Creates a client of one server (user, password and database are in its URL). Numbers of 64 bits and more arrive as
 * strings: `JSON.parse` of a bare UInt256 would round it. A writer reads its own writes, and those of all other writers, on
 * whichever replica: see `writerSettings`.
 */
export function createClickHouse(url: string, options: ClickHouseOptions): ClickHouse {
  const { timeoutMs = 120_000, isReader = false, cluster = null } = options;
  const client = openClient(url, { ...options, timeoutMs, isReader, cluster });

  const insertEncoded: ClickHouse['insertEncoded'] = async (table, columns, bytes) => {
    const names = columns.map(({ name }) => `\`${name}\``).join(', ');
    await attempt(timeoutMs, null, async (signal) => {
      const result = await client.exec({
        query: `INSERT INTO ${table} (${names}) FORMAT RowBinary`,
        values: Readable.from([bytes], { objectMode: false }),
        abort_signal: signal,
      });
      // The response body is empty; reading it to its end frees the connection.
      for await (const chunk of result.stream) void chunk;
    });
  };

  const command: ClickHouse['command'] = async (sql, { params, settings } = {}) => {
    await attempt(timeoutMs, null, (signal) =>
      client.command({
        query: sql,
        ...(params === undefined ? {} : { query_params: { ...params } }),
        ...(settings === undefined ? {} : { clickhouse_settings: { ...settings } }),
        abort_signal: signal,
      }),
    );
  };
  const ddl: ClickHouse['ddl'] = async (sql) => {
    const query = tableStatement(sql, cluster?.name ?? null);
    if (cluster === null) return await command(query);
    const replicas = await attempt(timeoutMs, null, async (signal) => {
      const result = await client.query({ query, format: 'JSONEachRow', abort_signal: signal });
      return replicaRows.parse(await result.json());
    });
    assertDoneOnAll(sql, replicas);
  };

  return {
    ...createReads(client, timeoutMs, isReader),
    command,
    ddl,
    async syncReplicas(table) {
      if (cluster !== null) await ddl(`SYSTEM SYNC REPLICA ${table}`);
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

/** The statements that return rows. */
function createReads(
  client: ClickHouseClient,
  timeoutMs: number,
  isReader: boolean,
): Pick<ClickHouse, 'rows' | 'eachPart'> {
  const settingsOf = isReader ? readerSettings(client) : async (settings: Settings) => settings;
  const read = async (
    { name, sql }: Pick<ChQuery<unknown>, 'name' | 'sql'>,
    params: Params | undefined,
    { signal, settings }: ReadOptions & { readonly signal: AbortSignal },
  ) => {
    const own = await settingsOf({ ...QUOTED, ...settings, log_comment: name });
    return await client.query({
      query: sql,
      format: 'JSONEachRow',
      ...(own === null ? {} : { clickhouse_settings: { ...own } }),
      ...(params === undefined ? {} : { query_params: { ...params } }),
      abort_signal: signal,
    });
  };

  return {
    async rows(query, params, options = {}) {
      const raw = await attempt(timeoutMs, options.signal ?? null, async (signal) => {
        return await againIfReset(async () => {
          const result = await read(query, params, { ...options, signal });
          return await result.json<unknown>();
        });
      });
      return await mapYielding(raw, (row) => query.row.parse(row));
    },
    async eachPart(query, params, onRows, options = {}) {
      let isHandedOn = false;
      const yielding = createYielding();
      await attempt(timeoutMs, options.signal ?? null, async (signal) => {
        // Another attempt would hand on the same rows again.
        if (isHandedOn) throw unavailable('The answer of ClickHouse broke off', null);
        const result = await read(query, params, { ...options, signal });
        for await (const part of result.stream<unknown>()) {
          isHandedOn = true;
          onRows(part.map((row) => query.row.parse(row.json())));
          await yielding();
        }
      });
    },
  };
}

/** Sends a read once more if its connection broke: a server may close an idle connection just when it is used again. */
async function againIfReset<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (errorCode(error) !== 'ECONNRESET') throw error;
    return await read();
  }
}

function openClient(
  url: string,
  {
    application,
    connections = 10,
    timeoutMs,
    isReader,
    cluster,
  }: Required<Pick<ClickHouseOptions, 'timeoutMs' | 'isReader' | 'cluster'>> & ClickHouseOptions,
): ClickHouseClient {
  return createClient({
    url,
    application,
    // `attempt` ends a request earlier, and then knows why it ended.
    request_timeout: 2 * timeoutMs,
    max_open_connections: connections,
    keep_alive: { enabled: true },
    // The client logs to the console; every error reaches the caller anyway.
    log: { level: ClickHouseLogLevel.OFF },
    clickhouse_settings: {
      // The server keeps the start of an answer in memory, so that an error within it has an HTTP status. It must not wait for
      // the end of the query: then it buffers in a file, and with a full disk answers 200 without a row (26.7).
      buffer_size: String(BUFFER_BYTES),
      ...(isReader ? {} : writerSettings(cluster)),
    },
  });
}

/**
 * An acknowledged insert is stored, and every later read of a writer sees it: with a sequential quorum a replica answers such
 * a read only when it has all acknowledged rows, else with an error. ClickHouse Cloud needs no quorum, and one server ignores
 * what is about replicas.
 */
function writerSettings(cluster: Cluster | null): Settings {
  const always = { async_insert: 0, insert_deduplicate: 0, select_sequential_consistency: 1 };
  if (cluster === null) return always;
  return {
    ...always,
    insert_quorum: cluster.insertQuorum,
    insert_quorum_parallel: 0,
    insert_quorum_timeout: QUORUM_MS,
    // Each thread would wait for the quorum of another one.
    max_insert_threads: 1,
    distributed_ddl_output_mode: 'never_throw',
    distributed_ddl_task_timeout: DDL_SECONDS,
  };
}

/** What a replica answers to a statement on the cluster; `status` 0: done, null: no answer yet. */
const replicaRows = z.array(
  z.object({
    host: z.string(),
    port: z.number(),
    status: z.coerce.number().nullable(),
    error: z.string().nullable(),
  }),
);

function assertDoneOnAll(sql: string, replicas: z.infer<typeof replicaRows>): void {
  const failed = replicas.filter(({ status }) => status !== 0);
  if (failed.length === 0) return;
  const [statement = ''] = sql.match(/^[A-Z].*$/m) ?? [];
  const reasons = failed.map(
    ({ host, port, status, error }) =>
      `${host}:${port} ${status === null ? `did not finish within ${DDL_SECONDS} s` : `failed: ${error}`}`,
  );
  throw unavailable(
    `ClickHouse replicas have not all executed \`${statement}\`: ${reasons.join('; ')}`,
    null,
  );
}

/**
 * Runs one request of the client, again while other inserts into its table are under way. A request that took too long,
 * and a response that is not ClickHouse's, become `STORE_UNAVAILABLE`: the client reports them as bare errors.
 */
async function attempt<T>(
  timeoutMs: number,
  caller: AbortSignal | null,
  request: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const deadline = new AbortController();
  const timer = setTimeout(() => deadline.abort(), timeoutMs);
  const signal = caller === null ? deadline.signal : AbortSignal.any([caller, deadline.signal]);
  try {
    return await retry(async () => await request(signal), {
      isRetryable: (error) => error instanceof ClickHouseError && MOMENTARY_CODES.has(error.code),
      baseMs: 20,
      maxMs: 500,
      deadlineMs: timeoutMs,
      signal,
    });
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

/** Exceptions that pass in milliseconds while everything works: quorum inserts into a table exclude each other. */
const MOMENTARY_CODES: ReadonlySet<string> = new Set([
  '286', // UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
  '289', // REPLICA_IS_NOT_IN_QUORUM
]);

/** Exceptions of ClickHouse that pass without a change of the query. */
const RETRYABLE_CODES: ReadonlySet<string> = new Set([
  ...MOMENTARY_CODES,
  '75', // CANNOT_WRITE_TO_FILE_DESCRIPTOR
  '159', // TIMEOUT_EXCEEDED
  '164', // READONLY: the replica is not active in Keeper yet
  '202', // TOO_MANY_SIMULTANEOUS_QUERIES
  '203', // NO_FREE_CONNECTION
  '204', // CANNOT_FSYNC
  '209', // SOCKET_TIMEOUT
  '210', // NETWORK_ERROR
  '216', // QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING: a proxy sent a request again whose connection broke
  '225', // NO_ZOOKEEPER
  '236', // ABORTED: the server is stopping
  '241', // MEMORY_LIMIT_EXCEEDED
  '242', // TABLE_IS_READ_ONLY: the replica has lost Keeper
  '243', // NOT_ENOUGH_SPACE
  '244', // UNEXPECTED_ZOOKEEPER_ERROR
  '252', // TOO_MANY_PARTS
  '279', // ALL_CONNECTION_TRIES_FAILED
  '285', // TOO_FEW_LIVE_REPLICAS
  '319', // UNKNOWN_STATUS_OF_INSERT
  '341', // UNFINISHED: a mutation, on some replica
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
