import { z } from 'zod';

import { sqlRow } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';

/** Read side of the encrypted sync. `schema` is the served build's: `served.schema('sync')`. */

const blobRow = z.object({
  version: z.number(),
  blob: z.string(),
  auth_key: z.string(),
  key_command: z.string(),
  last_modified: z.number(),
});
/** `auth_key` is sealed; `last_modified` in unix milliseconds. */
export type SyncBlob = z.infer<typeof blobRow>;

export async function syncBlob(db: Sql, schema: string, lookupHash: string): Promise<SyncBlob | null> {
  return await sqlRow(
    db,
    blobRow,
    `SELECT version, blob, auth_key, key_command, last_modified FROM ${schema}.sync_blobs WHERE lookup_hash = $1`,
    [lookupHash],
  );
}
