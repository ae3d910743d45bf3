import { text } from 'node:stream/consumers';

import { ClickHouseLogLevel, createClient } from '@clickhouse/client';
import type { ClickHouseClient } from '@clickhouse/client';
import { z } from 'zod';

import { attempt, unavailable } from './attempt.ts';
import { tableStatement } from './ddl.ts';
import type { Cluster } from './ddl.ts';
import { databaseOf, openHttpInterface, run } from './http-interface.ts';
import type { Params } from './http-interface.ts';
import { readerSettings } from './reader-profile.ts';
import type { Settings } from './reader-profile.ts';
import { createReads } from './reads.ts';
import type { Reads } from './reads.ts';
import { encodeRows } from './row-binary.ts';
import type { ColumnSpec, Row } from './row-binary.ts';
import { withWholeReads } from './whole-reads.ts';

export {
  isClickHouseMissingPrivilege,
  isClickHouseRejection,
  isClickHouseUnavailable,
  isThrowIf,
} from './attempt.ts';
export type { Params } from './http-interface.ts';
export type { ChQuery, FileStatement, ReadOptions, RowParser, RowReader } from './reads.ts';
export type { Settings };

export interface ClickHouse extends Reads {
  /** Runs `INSERT … SELECT`, or a mutation; resolves when it is done. */
  command(
    sql: string,
    options?: { params?: Params; settings?: Settings; signal?: AbortSignal },
  ): Promise<void>;
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

/** The same client; once the signal fires, its reads and commands are no longer waited for. */
export function endingWith<C extends Pick<ClickHouse, 'rows' | 'command'>>(
  clickhouse: C,
  signal: AbortSignal,
): C {
  const rows: ClickHouse['rows'] = async (query, params, options) =>
    await clickhouse.rows(query, params, { ...options, signal });
  const command: ClickHouse['command'] = async (sql, options) =>
    await clickhouse.command(sql, { ...options, signal });
  return { ...clickhouse, rows, command };
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
  /** At most so many; each read of a writer on a cluster opens one more. */
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
 * whichever replica: see `withWholeReads`.
 */
export function createClickHouse(url: string, options: ClickHouseOptions): ClickHouse {
  const { timeoutMs = 120_000, isReader = false, cluster = null } = options;
  const { application, connections = 10 } = options;
  const settings = {
    // The server keeps the start of an answer in memory, so that an error within it has an HTTP status. It must not wait for
    // the end of the query: then it buffers in a file, and with a full disk answers 200 without a row (26.7).
    buffer_size: BUFFER_BYTES,
    ...(isReader ? {} : writerSettings(cluster)),
  };
  const plain = openHttpInterface(url, { application, connections, settings });
  const http = isReader || cluster === null ? plain : withWholeReads(plain);
  const client = openClient(url, { application, connections, timeoutMs, settings });

  const insertEncoded: ClickHouse['insertEncoded'] = async (table, columns, bytes) => {
    const names = columns.map(({ name }) => `\`${name}\``).join(', ');
    await attempt(timeoutMs, null, async (signal) => {
      const sql = `INSERT INTO ${table} (${names}) FORMAT RowBinary`;
      await run(http, { sql, data: bytes, signal });
    });
  };

  const command: ClickHouse['command'] = async (sql, { params, settings: own, signal: caller } = {}) => {
    await attempt(
      timeoutMs,
      caller ?? null,
      async (signal) => await run(http, { sql, params, settings: own, signal }),
    );
  };
  /** Runs a statement with ON CLUSTER. */
  const onEveryReplica = async (sql: string): Promise<void> => {
    const replicas = await attempt(timeoutMs, null, async (signal) => {
      // A FORMAT at the end is ignored by ClickHouse 25.8 if the statement creates a table.
      const { body } = await http.send({ sql, settings: { default_format: 'JSONEachRow' }, signal });
      const lines = (await text(body)).split('\n').filter((line) => line !== '');
      return replicaRows.parse(lines.map((line) => JSON.parse(line)));
    });
    assertDoneOnAll(sql, replicas);
  };

  return {
    ...createReads(http, timeoutMs, isReader ? readerSettings(client) : async (own) => own),
    command,
    async ddl(sql) {
      const statement = tableStatement(sql, cluster?.name ?? null);
      await (cluster === null ? command(statement) : onEveryReplica(statement));
    },
    async syncReplicas(table) {
      if (cluster === null) return;
      // The replicas would look for the table in the database `default`.
      await onEveryReplica(
        `SYSTEM SYNC REPLICA ON CLUSTER '${cluster.name}' \`${databaseOf(url)}\`.${table}`,
      );
    },
    async insert(table, columns, rows) {
      if (rows.length > 0) await insertEncoded(table, columns, encodeRows(columns, rows));
    },
    insertEncoded,
    async ping() {
      return (await client.ping({ select: true })).success;
    },
    async close() {
      await Promise.all([http.close(), client.close()]);
    },
  };
}

/** The client for what is rare: pings, and the profile of a reader. */
function openClient(
  url: string,
  {
    application,
    connections,
    timeoutMs,
    settings,
  }: Required<Pick<ClickHouseOptions, 'application' | 'connections' | 'timeoutMs'>> & { settings: Settings },
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
    clickhouse_settings: { ...settings },
  });
}

/**
 * An acknowledged insert is stored. With a sequential quorum, a writer reads no rows that are not acknowledged; that it reads
 * all that are, `withWholeReads` ensures on a cluster. ClickHouse Cloud needs no quorum, and a single server ignores the settings
 * about replicas.
 */
function writerSettings(cluster: Cluster | null): Settings {
  const always = {
    async_insert: 0,
    insert_deduplicate: 0,
    select_sequential_consistency: 1,
    // Rows of one key in one insert are as rare as reorgs: FINAL and merges replace them, as those of two inserts.
    optimize_on_insert: 0,
  };
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
