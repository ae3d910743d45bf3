import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import { commandProjection } from '../commands.ts';
import { tableSql } from '../define.ts';
import { decideSync } from './decider.ts';

const storedRow = z.object({ version: z.number(), key_command: z.string() });

/** The blobs of the encrypted sync. */
export const sync = commandProjection({
  name: 'sync',
  version: 1,
  ddl: tableSql(import.meta.url),
  async decide(tx, schema, command) {
    const table = `${schema}.sync_blobs`;
    const [stored = null] = await sqlRows(
      tx,
      storedRow,
      `SELECT version, key_command FROM ${table} WHERE lookup_hash = $1`,
      [command.body.lookup_hash],
    );
    const { outcome, changes } = decideSync(stored, command);
    for (const { lookupHash, version, blob, lastModified, key } of changes) {
      const values = [lookupHash, version, blob, lastModified];
      await (key === null
        ? tx.query(
            `UPDATE ${table} SET version = $2, blob = $3, last_modified = $4 WHERE lookup_hash = $1`,
            values,
          )
        : tx.query(
            `INSERT INTO ${table} (lookup_hash, version, blob, last_modified, auth_key, key_command)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (lookup_hash) DO UPDATE SET version = $2, blob = $3, last_modified = $4, auth_key = $5`,
            [...values, key.sealed, key.command],
          ));
    }
    return outcome;
  },
});
