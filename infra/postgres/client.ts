import { createHash } from 'node:crypto';

import pg from 'pg';
import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';
import { mapYielding } from '../yielding.ts';
import { errorCode } from '../error-code.ts';
import { isBareError, isNetworkError } from '../network-errors.ts';

/** Anything that runs a statement: a pool, or a client inside a transaction. */
export interface Sql {
  query<R extends pg.QueryResultRow = pg.QueryResultRow>(
    statement: string | Statement,
    values?: readonly unknown[],
  ): Promise<pg.QueryResult<R>>;
}

/** A statement with options of its own. */
export interface Statement {
  readonly text: string;
  readonly values?: readonly unknown[];
  /** Its time limit, in milliseconds. */
  readonly query_timeout?: number;
  /** Under this name the connection keeps the statement parsed and planned. */
  readonly name?: string;
}

/** Names of prepared statements by their texts. */
const names = new Map<string, string>();

/**
 * A statement that is parsed and planned once a connection, for those that run with every block, message or request. Only for
 * a bounded number of texts, as connections keep each, and not for `SELECT *`, which fails after a change of its table.
 */
export function prepared(
  text: string,
  values: readonly unknown[] = [],
): Statement & { readonly name: string } {
  let name = names.get(text);
  if (name === undefined) {
    name = createHash('sha1').update(text).digest('hex');
    names.set(text, name);
  }
  return { name, text, values };
}

export interface Pool extends Sql {
  connect(): Promise<PoolClient>;
  end(): Promise<void>;
}

/** A connection lent by the pool. */
export interface PoolClient extends Sql {
  /** True once the connection has failed or was closed: its transaction and its locks are gone. */
  isLost(): boolean;
  /** @param destroy closes the connection instead of keeping it for the next caller */
  release(destroy?: boolean): void;
}

/** Parses int8 as a number (offsets, heights, milliseconds: all far below 2^53), and rejects a larger one. */
const types = {
  getTypeParser(oid: number, format?: 'text' | 'binary'): unknown {
    if (oid !== pg.types.builtins.INT8) return pg.types.getTypeParser(oid, format);
    return (text: string) => {
      const value = Number(text);
      if (!Number.isSafeInteger(value)) throw new RangeError(`int8 out of the safe range: ${text}`);
      return value;
    };
  },
} as pg.CustomTypesConfig;

/**
 * Creates a pool whose errors can be classified: pg reports a lost connection and its own timeouts as bare errors, so
 * they are wrapped here in `STORE_UNAVAILABLE`, by what happened to the connection.
 */
export function createPool(
  connectionString: string,
  options: {
    applicationName: string;
    max?: number;
    /** Limit of the wait for a free connection, and of opening one. */
    connectTimeoutMs?: number;
    /** Limit of one statement; exceeding it closes the connection, since the server hangs or is cut off. */
    queryTimeoutMs?: number;
    onError?: (error: Error) => void;
  },
): Pool {
  const { connectTimeoutMs = 5000, queryTimeoutMs = null, max = 10 } = options;
  const pool = new pg.Pool({
    connectionString,
    types,
    max,
    application_name: options.applicationName,
    connectionTimeoutMillis: connectTimeoutMs,
    keepAlive: true,
    Client: ConnectingClient,
  });
  const lost = new WeakSet<pg.ClientBase>();
  pool.on('error', (error) => options.onError?.(error));
  pool.on('connect', (client) => {
    const markLost = (): void => void lost.add(client);
    // Without a listener, an error of a lent client would end the process.
    client.on('error', markLost);
    client.once('end', markLost);
  });

  const connect = async (): Promise<PoolClient> => {
    // pg-pool starts a timer of the same length right after this one, so this one fires first.
    const timeout = startTimer(connectTimeoutMs);
    let client: pg.PoolClient;
    try {
      client = await pool.connect();
    } catch (error) {
      throw timeout.hasFired() && isBareError(error)
        ? unavailable(`PostgreSQL did not answer within ${connectTimeoutMs} ms: no connection`, error)
        : error;
    } finally {
      timeout.clear();
    }
    return lend(client, lost, queryTimeoutMs);
  };
  return {
    connect,
    async query<R extends pg.QueryResultRow>(statement: string | Statement, values?: readonly unknown[]) {
      const client = await connect();
      let hasFailed = true;
      try {
        const result = await client.query<R>(statement, values);
        hasFailed = false;
        return result;
      } finally {
        client.release(hasFailed);
      }
    },
    end: () => pool.end(),
  };
}

/** A client whose failure to connect can be classified: a server that hangs up while it starts is a bare error in pg. */
class ConnectingClient extends pg.Client {
  override connect(): Promise<pg.Client>;
  override connect(callback: ((error: Error) => void) | ((error: null, client: pg.Client) => void)): void;
  override connect(
    callback?: ((error: Error) => void) | ((error: null, client: pg.Client) => void),
  ): Promise<pg.Client> | void {
    if (callback === undefined) return super.connect();
    let isClosed = false;
    this.connection.once('end', () => {
      isClosed = true;
    });
    super.connect((error: Error | null) => {
      const isHangUp = isClosed && isBareError(error);
      const reported = isHangUp ? unavailable('PostgreSQL closed the connection', error) : error;
      Reflect.apply(callback, undefined, [reported, this]);
    });
  }
}

function lend(
  client: pg.PoolClient,
  lost: WeakSet<pg.ClientBase>,
  queryTimeoutMs: number | null,
): PoolClient {
  return {
    isLost: () => lost.has(client),
    release: (destroy = false) => client.release(destroy || lost.has(client)),
    async query<R extends pg.QueryResultRow>(statement: string | Statement, values?: readonly unknown[]) {
      const { query_timeout: timeoutMs = queryTimeoutMs, ...config } =
        typeof statement === 'string' ? { text: statement, values } : statement;
      // Ends the statement, too: without an answer the connection is of no use.
      const timeout =
        timeoutMs === null ? null : startTimer(timeoutMs, () => void client.end().catch(() => {}));
      try {
        const { values: given, ...rest } = config;
        return await client.query<R>({ ...rest, ...(given === undefined ? {} : { values: [...given] }) });
      } catch (error) {
        if (timeout?.hasFired() === true) {
          throw unavailable(`PostgreSQL did not answer within ${timeoutMs} ms`, error);
        }
        if (lost.has(client) && isBareError(error)) {
          throw unavailable('The connection to PostgreSQL was lost', error);
        }
        // The connection leads to a standby, or to a primary that was demoted, which will not accept writes again.
        if (errorCode(error) === READ_ONLY) lost.add(client);
        throw error;
      } finally {
        timeout?.clear();
      }
    },
  };
}

function startTimer(ms: number, onTimeout = (): void => {}): { hasFired(): boolean; clear(): void } {
  let hasFired = false;
  const timer = setTimeout(() => {
    hasFired = true;
    onTimeout();
  }, ms);
  return { hasFired: () => hasFired, clear: () => clearTimeout(timer) };
}

const STORE = 'PostgreSQL';
/** SQLSTATE of a write where none is accepted: during a fail-over, the URL may still lead to the standby. */
const READ_ONLY = '25006';

export function unavailable(message: string, cause: unknown): AppError {
  return new AppError('STORE_UNAVAILABLE', message, { retryable: true, cause, details: { store: STORE } });
}

/**
 * Runs `work` in one transaction; any error rolls it back.
 *
 * @param options.idleMs the server rolls back a transaction that is idle for this long, and releases its locks: its process
 * is frozen or cut off
 */
export async function inTransaction<T>(
  pool: Pool,
  work: (tx: PoolClient) => Promise<T>,
  { idleMs }: { idleMs?: number } = {},
): Promise<T> {
  const client = await pool.connect();
  let broken = false;
  try {
    const bounded = idleMs === undefined ? '' : `; SET LOCAL idle_in_transaction_session_timeout = ${idleMs}`;
    await client.query(`BEGIN${bounded}`);
    const result = await work(client);
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {
      broken = true;
    });
    throw error;
  } finally {
    client.release(broken);
  }
}

/** Rows of a query, parsed at the border. */
export async function sqlRows<T>(
  db: Sql,
  row: z.ZodType<T>,
  statement: string | Statement,
  values: readonly unknown[] = [],
): Promise<T[]> {
  const result = await db.query(statement, values);
  return await mapYielding<unknown, T>(result.rows, (raw) => row.parse(raw));
}

/** The first row of a query; null where it has none. */
export async function sqlRow<T>(
  db: Sql,
  row: z.ZodType<T>,
  statement: string | Statement,
  values: readonly unknown[] = [],
): Promise<T | null> {
  const [first] = await sqlRows(db, row, statement, values);
  return first ?? null;
}

const countRow = z.object({ n: z.number() });

/** The number `n` of the one row of a query. */
export async function countOf(db: Sql, text: string, values: readonly unknown[] = []): Promise<number> {
  return (await sqlRow(db, countRow, text, values))?.n ?? 0;
}

/**
 * True where another attempt can help: no answer, a broken connection, or a server that is starting, stopping, short of
 * something, failed at its disk, accepts no writes yet, or gave up on a conflict, a statement, or an idle or long transaction
 * (SQLSTATE classes 08, 40, 53, 57, 58, and 25006, 25P03, 25P04).
 */
export function isPostgresUnavailable(error: unknown): boolean {
  if (error instanceof AppError)
    return error.code === 'STORE_UNAVAILABLE' && error.details['store'] === STORE;
  return isNetworkError(error) || /^(08|40|53|57|58)...$|^25(006|P0[34])$/.test(errorCode(error) ?? '');
}

/** True where a lock was not granted within `lock_timeout` (SQLSTATE 55P03). */
export function isLockTimeout(error: unknown): boolean {
  return errorCode(error) === '55P03';
}

/**
 * True where a table or its schema does not exist (SQLSTATE 42P01, 3F000): a rebuild has replaced it since its name was
 * looked up.
 */
export function isTableMissing(error: unknown): boolean {
  return ['42P01', '3F000'].includes(errorCode(error) ?? '');
}

/** True where the role lacks a privilege (SQLSTATE 42501). */
export function isPrivilegeMissing(error: unknown): boolean {
  return errorCode(error) === '42501';
}
