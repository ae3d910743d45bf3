import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';

/** Read side of the counts of ads. `schema` is the served build's: `served.schema('ad-counts')`. */

const countsRow = z.object({ ad_id: z.number(), impressions: z.number(), clicks: z.number() });
export type AdCounts = Omit<z.infer<typeof countsRow>, 'ad_id'>;

/** Counts by ad; ads that were never shown or clicked are missing. */
export async function countsOfAds(
  db: Sql,
  schema: string,
  adIds: readonly number[],
): Promise<ReadonlyMap<number, AdCounts>> {
  const rows = await sqlRows(
    db,
    countsRow,
    `SELECT ad_id, impressions, clicks FROM ${schema}.ad_counts WHERE ad_id = ANY($1)`,
    [adIds],
  );
  return new Map(rows.map(({ ad_id: id, ...counts }) => [id, counts]));
}

/** True when the event of this id is counted. */
export async function isCounted(db: Sql, schema: string, id: string): Promise<boolean> {
  const { rowCount } = await db.query(`SELECT 1 FROM ${schema}.ad_events WHERE id = $1`, [id]);
  return rowCount !== 0;
}
