import { OBSERVED_CHANNEL } from '../../schemas/messages/requests.ts';
import type { BalancesMessage } from '../../schemas/messages/balances.ts';
import { storable } from '../../schemas/text.ts';
import { topics } from '../../schemas/topics.ts';
import { tableSql } from '../define.ts';
import type { PostgresProjection } from '../define.ts';

const DAY_MS = 86_400_000;

/**
 * What the chain answered about pairs that no indexed transfer moved: of use to those who ask again soon. Anybody may ask
 * about any pair, so an answer is deleted as soon as a message arrives that the log took a day later.
 */
export const unmovedBalances: PostgresProjection<BalancesMessage> = {
  kind: 'postgres',
  name: 'unmoved-balances',
  version: 1,
  topic: topics.unmovedBalances,
  ddl: tableSql(import.meta.url),
  notify: { channel: OBSERVED_CHANNEL, payload: ({ account, token }) => `${account}:${token}` },
  carryOver: `INSERT INTO {{schema}}.answers SELECT * FROM {{previous_schema}}.answers ON CONFLICT DO NOTHING`,
  async fold(tx, message, { schema, timestamp }) {
    const { account, token, block, block_hash, observed_at, requested_at } = message;
    const [balance, reason] =
      message.type === 'balance.observed' ? [message.balance, null] : [null, storable(message.reason)];
    await tx.query(`DELETE FROM ${schema}.answers WHERE stored_at < $1`, [timestamp - DAY_MS]);
    await tx.query(
      `INSERT INTO ${schema}.answers AS known
         (account, token, block, block_hash, balance, reason, observed_at, requested_at, stored_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
       ON CONFLICT (account, token) DO UPDATE SET block = excluded.block, block_hash = excluded.block_hash,
         balance = excluded.balance, reason = excluded.reason, observed_at = excluded.observed_at,
         requested_at = greatest(known.requested_at, excluded.requested_at), stored_at = excluded.stored_at
       WHERE known.stored_at <= excluded.stored_at`,
      [account, token, block, block_hash, balance, reason, observed_at, requested_at, timestamp],
    );
  },
};
