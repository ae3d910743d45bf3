import { Readable } from 'node:stream';

import { ClickHouseError, ClickHouseLogLevel, createClient } from '@clickhouse/client';
import type { z } from 'zod';

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
  /** DDL, or `INSERT … SELECT`; resolves when it is done. */
  command(sql: string, options?: { params?: Params; settings?: Settings }): Promise<void>;
  /** Resolves when ClickHouse has acknowledged every row. */
  insert(table: string, columns: readonly ColumnSpec[], rows: readonly Row[]): Promise<void>;
  /** The same for rows that are already RowBinary in the order of `columns`. */
  insertEncoded(table: string, columns: readonly ColumnSpec[], bytes: Buffer): Promise<void>;
  /** True when it answers. */
  ping(): Promise<boolean>;
  close(): Promise<void>;
}

/**
 * One client of one server by URL (user, password and database in it). Numbers of 64 bits and more arrive as strings:
 * `JSON.parse` of a bare UInt256 would round it.
 */
export function createClickHouse(
  url: string,
  options: { application: string; timeoutMs?: number; connections?: number },
): ClickHouse {
  const client = createClient({
    url,
    application: options.application,
    request_timeout: options.timeoutMs ?? 120_000,
    max_open_connections: options.connections ?? 10,
    keep_alive: { enabled: true },
    // It writes past our log; whoever calls hears of every error.
    log: { level: ClickHouseLogLevel.OFF },
    clickhouse_settings: { output_format_json_quote_64bit_integers: 1, wait_end_of_query: 1 },
  });

  const insertEncoded: ClickHouse['insertEncoded'] = async (table, columns, bytes) => {
    const names = columns.map(({ name }) => `\`${name}\``).join(', ');
    const result = await client.exec({
      query: `INSERT INTO ${table} (${names}) FORMAT RowBinary`,
      values: Readable.from([bytes], { objectMode: false }),
      clickhouse_settings: { async_insert: 0 },
    });
    // The answer's body is empty; it must be read to its end so that the connection is free again.
    for await (const chunk of result.stream) void chunk;
  };

  return {
    async rows(query, params, { signal, settings } = {}) {
      const result = await client.query({
        query: query.sql,
        format: 'JSONEachRow',
        clickhouse_settings: { ...settings, log_comment: query.name },
        ...(params === undefined ? {} : { query_params: { ...params } }),
        ...(signal === undefined ? {} : { abort_signal: signal }),
      });
      const raw = await result.json<unknown>();
      return raw.map((row) => query.row.parse(row));
    },
    async command(sql, { params, settings } = {}) {
      await client.command({
        query: sql,
        ...(params === undefined ? {} : { query_params: { ...params } }),
        ...(settings === undefined ? {} : { clickhouse_settings: { ...settings } }),
      });
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

/**
 * True where trying again can help: no answer (connection, time-out), or the server is short of something now
 * (TOO_MANY_PARTS 252, MEMORY_LIMIT_EXCEEDED 241, TIMEOUT_EXCEEDED 159, NOT_ENOUGH_SPACE 243,
 * CANNOT_WRITE_TO_FILE_DESCRIPTOR 75, TOO_MANY_SIMULTANEOUS_QUERIES 202).
 */
export function isClickHouseUnavailable(error: unknown): boolean {
  if (error instanceof ClickHouseError)
    return ['75', '159', '202', '210', '241', '243', '252'].includes(error.code);
  return (
    error instanceof Error &&
    !(error instanceof TypeError) &&
    error.name !== 'ZodError' &&
    error.name !== 'AppError'
  );
}
