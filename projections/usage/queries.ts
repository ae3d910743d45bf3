import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { ServedTables } from '../served.ts';

/** Read side of the usage of API keys. */

const HOUR_MS = 3_600_000;
const usageRow = z.object({ o_hour: z.int(), o_calls: z.coerce.number(), o_successful: z.coerce.number() });

/** `hour`: its beginning in unix milliseconds. */
export interface UsedHour {
  readonly hour: number;
  readonly calls: number;
  readonly successful: number;
}

/** The hours that begin within two times (unix milliseconds, both inclusive) and in which a key was used; ascending. */
export async function usedHours(
  clickhouse: RowReader,
  tables: ServedTables,
  { keyId, from, to }: { keyId: number; from: number; to: number },
): Promise<UsedHour[]> {
  const sql = `SELECT hour AS o_hour, calls AS o_calls, successful AS o_successful
    FROM ${tables.table('usage_hourly')} FINAL
    WHERE key_id = {key:UInt64} AND hour BETWEEN {from:UInt64} AND {to:UInt64}
    ORDER BY hour`;
  const rows = await clickhouse.rows(
    { name: 'usage.hours', sql, row: usageRow },
    { key: keyId, from: Math.max(0, Math.ceil(from / HOUR_MS)), to: Math.max(0, Math.floor(to / HOUR_MS)) },
    // A year has 8,784.
    { settings: { max_result_rows: 0 } },
  );
  return rows.map(({ o_hour, o_calls, o_successful }) => ({
    hour: o_hour * HOUR_MS,
    calls: o_calls,
    successful: o_successful,
  }));
}
