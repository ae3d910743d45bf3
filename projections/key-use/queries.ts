import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';

/** Read side of the last use of API keys. `schema` is the served build's: `served.schema('key-use')`. */

const useRow = z.object({ key_id: z.number(), last_used_at: z.number() });

/** Unix milliseconds by key; keys that were never used are missing. */
export async function lastUses(
  db: Sql,
  schema: string,
  keyIds: readonly number[],
): Promise<ReadonlyMap<number, number>> {
  const rows = await sqlRows(
    db,
    useRow,
    `SELECT key_id, last_used_at FROM ${schema}.key_use WHERE key_id = ANY($1)`,
    [keyIds],
  );
  return new Map(rows.map(({ key_id, last_used_at }) => [key_id, last_used_at]));
}
