import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

import PQueue from 'p-queue';

import { pause } from '../../lifecycle.ts';
import { ClickHouseException, fromEngine } from './errors.ts';

/** The native addon of the package `chdb`, as far as it is used here. */
interface Native {
  CreateConnection(path: string, args?: readonly string[]): Connection;
  CloseConnection(connection: Connection): void;
  QueryAsyncConnection(connection: Connection, sql: string, format: string): Promise<NativeResult>;
  /** Starts one statement (the engine rejects several). Blocks for some 2 ms, not for the whole query. */
  StreamQuery(connection: Connection, sql: string, format: string): StreamHandle;
  StreamFetch(handle: StreamHandle): Promise<{ bytes: Uint8Array; numRows: number; done: boolean }>;
  /** Must follow every StreamQuery, but never during a fetch. */
  StreamCancel(handle: StreamHandle): void;
}
interface NativeResult {
  readonly bytes: Uint8Array;
  readonly rowsRead: number;
  readonly bytesRead: number;
}
export type Connection = { readonly __connection: never };
type StreamHandle = { readonly __stream: never };

interface Statement {
  readonly sql: string;
  /** `USE` and `SET` statements that run first, on the same connection. */
  readonly prelude: readonly string[];
  readonly format: string;
  /** Return the result block by block; only for formats whose blocks can be concatenated. */
  readonly streamed: boolean;
  /** Kills the query. */
  readonly signal: AbortSignal;
  /** The caller's `log_comment`. */
  readonly comment: string;
}

export interface Stats {
  readonly rows: number;
  readonly rowsRead: number;
  readonly bytesRead: number;
}

export interface Engine {
  readonly version: string;
  /** Waits for a slot, then runs the statement and passes its result to `consume` in chunks, awaiting each call. */
  run(
    slot: 'read' | 'insert',
    statement: Statement,
    consume: (chunk: Uint8Array) => Promise<void> | void,
    session?: Connection,
  ): Promise<Stats>;
  openSession(): Connection;
  /** Resets settings to their defaults. */
  reset(connection: Connection, settings: readonly string[]): Promise<void>;
  closeSession(connection: Connection): void;
  /** Waits for running queries, then closes the folder. */
  close(): Promise<void>;
}

/** Each query opens its own connection (0.1 ms), because one connection runs one query at a time. */
const readSlots = 8;
const insertSlots = 2;

/**
 * Opens the ClickHouse engine on a folder. One connection stays open until `close`; without it the engine would close the
 * folder between two queries.
 */
export async function openEngine(options: {
  dataDir: string;
  /** Memory limits in bytes, of the engine and of one query. */
  memory: number;
  queryMemory: number;
  markCache: number;
}): Promise<Engine> {
  const native = loadNative();
  const keep = native.CreateConnection(options.dataDir, [
    `--max_server_memory_usage=${options.memory}`,
    `--mark_cache_size=${options.markCache}`,
    // The default background pools, made for hundreds of tables, would keep some 100 threads.
    '--background_pool_size=4',
    '--background_schedule_pool_size=8',
    '--background_fetches_pool_size=1',
    '--background_common_pool_size=2',
    '--background_move_pool_size=1',
    // Idle threads kept after a burst of queries; the default is 1,000.
    '--max_thread_pool_free_size=16',
  ]);
  const reads = new PQueue({ concurrency: readSlots });
  const inserts = new PQueue({ concurrency: insertSlots });
  const housekeeping = new PQueue({ concurrency: 2 });

  const text = async (connection: Connection, sql: string): Promise<string> => {
    const result = await native.QueryAsyncConnection(connection, sql, 'TabSeparated');
    return Buffer.from(result.bytes).toString('utf8');
  };
  const version = (await text(keep, 'SELECT version()')).trim();
  await text(keep, 'CREATE DATABASE IF NOT EXISTS tds ENGINE = Atomic');

  /** Repeats the kill until the query has ended, because the engine may not list it yet. `SYNC` would hang. */
  async function killUntil(tag: string, ended: AbortSignal): Promise<void> {
    while (!ended.aborted) {
      await housekeeping.add(async () => {
        const connection = native.CreateConnection(options.dataDir);
        try {
          await text(connection, `KILL QUERY WHERE Settings['log_comment'] = '${tag}' ASYNC`);
        } catch {
          // The query is not listed yet, or no longer.
        } finally {
          native.CloseConnection(connection);
        }
      });
      await pause(100, ended);
    }
  }

  async function onConnection(
    connection: Connection,
    statement: Statement,
    consume: (chunk: Uint8Array) => Promise<void> | void,
  ): Promise<Stats> {
    for (const sql of batches(statement.prelude)) await native.QueryAsyncConnection(connection, sql, 'Null');
    if (!statement.streamed) {
      const result = await native.QueryAsyncConnection(connection, statement.sql, statement.format);
      await consume(result.bytes);
      return { rows: 0, rowsRead: result.rowsRead, bytesRead: result.bytesRead };
    }
    const handle = native.StreamQuery(connection, statement.sql, statement.format);
    let rows = 0;
    try {
      for (;;) {
        const block = await native.StreamFetch(handle);
        if (block.done) break;
        rows += block.numRows;
        await consume(block.bytes);
        if (statement.signal.aborted) throw cancelled();
      }
    } finally {
      native.StreamCancel(handle);
    }
    return { rows, rowsRead: rows, bytesRead: 0 };
  }

  async function run(
    statement: Statement,
    consume: (chunk: Uint8Array) => Promise<void> | void,
    session: Connection | undefined,
  ): Promise<Stats> {
    if (statement.signal.aborted) throw cancelled();
    const tag = `${randomUUID()}${statement.comment === '' ? '' : ` ${quotable(statement.comment)}`}`;
    const ended = new AbortController();
    const onAbort = (): void => void killUntil(tag, ended.signal);
    const connection = session ?? native.CreateConnection(options.dataDir);
    statement.signal.addEventListener('abort', onAbort, { once: true });
    try {
      const cap = `SET max_memory_usage = ${options.queryMemory}`;
      const prelude = [cap, ...statement.prelude, `SET log_comment = '${tag}'`];
      return await onConnection(connection, { ...statement, prelude: readonlyLast(prelude) }, consume);
    } catch (error) {
      throw fromEngine(error);
    } finally {
      ended.abort();
      statement.signal.removeEventListener('abort', onAbort);
      if (session === undefined) native.CloseConnection(connection);
    }
  }

  return {
    version,
    async run(slot, statement, consume, session) {
      const queue = slot === 'insert' ? inserts : reads;
      return await queue.add(() => run(statement, consume, session));
    },
    openSession: () => native.CreateConnection(options.dataDir),
    async reset(connection, settings) {
      for (const name of settings) await text(connection, `SET ${name} = DEFAULT`).catch(() => '');
    },
    closeSession: (connection) => native.CloseConnection(connection),
    async close() {
      reads.clear();
      inserts.clear();
      await Promise.all([reads.onIdle(), inserts.onIdle(), housekeeping.onIdle()]);
      native.CloseConnection(keep);
    },
  };
}

function loadNative(): Native {
  const require = createRequire(import.meta.url);
  // The loader resolves the platform's package. The public API of chdb would serialise queries with parameters.
  const loader: unknown = require(join(dirname(require.resolve('chdb/package.json')), 'dist', 'loader.js'));
  return (loader as { loadNative(): Native }).loadNative();
}

/** Moves `readonly = 1` to the end: no setting can be changed after it. */
function readonlyLast(prelude: readonly string[]): string[] {
  const isLast = (sql: string): boolean => sql === setReadonly;
  return [...prelude.filter((sql) => !isLast(sql)), ...prelude.filter(isLast)];
}

export const setReadonly = 'SET readonly = 1';

/** The prelude as one query; if it exceeds the maximum query size (262,144 bytes), a query before it raises that. */
function batches(prelude: readonly string[]): string[] {
  const all = joined(prelude).join(';\n');
  const bytes = Buffer.byteLength(all);
  return bytes < 200_000 ? [all] : [`SET max_query_size = ${bytes * 2}`, all];
}

/** Merges consecutive SETs into one: the eleven settings of a page then take 0.6 ms instead of 1.5. */
function joined(prelude: readonly string[]): string[] {
  const out: string[] = [];
  for (const sql of prelude) {
    const last = out.at(-1);
    const shares = last?.startsWith('SET ') === true && sql.startsWith('SET ') && sql !== setReadonly;
    if (shares) out[out.length - 1] = `${last}, ${sql.slice('SET '.length)}`;
    else out.push(sql);
  }
  return out;
}

function quotable(comment: string): string {
  return comment.replaceAll(/[^\w .:/-]/g, '_').slice(0, 200);
}

function cancelled(): ClickHouseException {
  return new ClickHouseException(394, 'QUERY_WAS_CANCELLED', 'Query was cancelled');
}
