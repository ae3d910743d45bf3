import { storable } from '../../schemas/text.ts';
import type { Pool } from '../postgres/client.ts';

/** Conditions that need an operator, shown by /readyz, `tds status` and the metric `tds_alarms`. */
export interface Alarms {
  raise(name: string, detail: string): Promise<void>;
  clear(names: readonly string[]): Promise<void>;
}

/** The alarm that the node answers, but has no new block. */
export const HEAD_STALLED = 'node.head-stalled';

/** The alarms about contracts whose standard the node does not report; their addresses follow. */
export const UNCLASSIFIED = 'contract.unclassified:';

/** Raises alarms with the names and details of `source` (`VALUES …` or `SELECT …`). */
export const insertAlarms = (source: string): string =>
  `INSERT INTO tds.alarms (name, detail) ${source}
   ON CONFLICT (name) DO UPDATE SET detail = excluded.detail WHERE tds.alarms.detail <> excluded.detail`;

/** Deletes the alarms whose names begin with `prefix`: nothing here raises or clears them any more. */
export async function forgetAlarms(pool: Pool, prefix: string): Promise<void> {
  await pool.query('DELETE FROM tds.alarms WHERE starts_with(name, $1)', [prefix]);
}

export function createAlarms(pool: Pool): Alarms {
  return {
    async raise(name, detail) {
      await pool.query(insertAlarms('VALUES ($1, $2)'), [name, storable(detail)]);
    },
    async clear(names) {
      await pool.query('DELETE FROM tds.alarms WHERE name = ANY($1)', [names]);
    },
  };
}
