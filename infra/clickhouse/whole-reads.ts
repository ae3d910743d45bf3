import { ClickHouseError } from '@clickhouse/client';

import { run } from './http-interface.ts';
import type { HttpInterface } from './http-interface.ts';

/** How long a statement waits for a replica to fetch rows; then it is sent to another one. */
const FETCH_SECONDS = 0.5;

/**
 * A table that a statement reads: a plain name after FROM or JOIN, as all statements of the service have it. Tables of `system`
 * and table functions are none.
 */
const READ_TABLE = /\b(?:FROM|(?<!ARRAY )JOIN)\s+([A-Za-z_]\w*)\b(?![.(])/g;

/** What differs between replicas is read on a new connection, so of another replica each time. */
const OF_ONE_REPLICA = /\bsystem\.replicas\b/;

/** BAD_ARGUMENTS */
const NOT_REPLICATED_CODE = '36';
/** TIMEOUT_EXCEEDED */
const TIMEOUT_CODE = '159';

/**
 * The same interface, whose statements read all rows that any process was acknowledged before: a replica first fetches what it
 * lacks. A sequential quorum does not give that in ClickHouse 25.8: it compares only the newest part of each partition, which a
 * replica may have without earlier ones, and does so after it has chosen the parts to read.
 */
export function withWholeReads(http: HttpInterface): HttpInterface {
  return {
    ...http,
    async send(statement) {
      const { sql, signal } = statement;
      const tables = new Set(Array.from(sql.matchAll(READ_TABLE), ([, table = '']) => table));
      if (tables.size === 0 && !OF_ONE_REPLICA.test(sql)) return await http.send(statement);
      return await http.onOneConnection(async (send) => {
        for (const table of tables) await fetchRows(send, table, signal);
        return await send(statement);
      });
    },
  };
}

/** Resolves when the replica has all rows of a table. */
async function fetchRows(send: HttpInterface['send'], table: string, signal: AbortSignal): Promise<void> {
  const sql = `SYSTEM SYNC REPLICA ${table} IF EXISTS LIGHTWEIGHT`;
  try {
    await run({ send }, { sql, settings: { receive_timeout: FETCH_SECONDS }, signal });
  } catch (error) {
    const code = error instanceof ClickHouseError ? error.code : null;
    if (code === TIMEOUT_CODE) throw lags(table);
    if (code !== NOT_REPLICATED_CODE) throw error;
  }
}

/** What ClickHouse answers where it finds that itself. */
const lags = (table: string): ClickHouseError =>
  new ClickHouseError({
    code: '289',
    type: 'REPLICA_IS_NOT_IN_QUORUM',
    message: `The replica lacks rows of ${table}`,
  });
