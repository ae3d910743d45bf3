import type { UsageMessage } from '../../schemas/messages/usage.ts';
import { topics } from '../../schemas/topics.ts';
import { tableSql } from '../define.ts';
import type { PostgresProjection } from '../define.ts';

/** When API keys were last used; in PostgreSQL, so that a list of keys shows it while ClickHouse is unavailable. */
export const keyUse: PostgresProjection<UsageMessage> = {
  kind: 'postgres',
  name: 'key-use',
  version: 1,
  topic: topics.usage,
  ddl: tableSql(import.meta.url),
  carryOver: `INSERT INTO {{schema}}.key_use (key_id, last_used_at)
    SELECT key_id, last_used_at FROM {{previous_schema}}.key_use ON CONFLICT DO NOTHING`,
  async fold(tx, { key_id: keyId, last_used_at: at }, { schema }) {
    await tx.query(
      `INSERT INTO ${schema}.key_use AS known (key_id, last_used_at) VALUES ($1, $2)
       ON CONFLICT (key_id) DO UPDATE SET last_used_at = excluded.last_used_at
       WHERE known.last_used_at < excluded.last_used_at`,
      [keyId, at],
    );
  },
};
