import { OBSERVED_CHANNEL } from '../../schemas/messages/requests.ts';
import type { BalancesMessage } from '../../schemas/messages/balances.ts';
import { storable } from '../../schemas/text.ts';
import { topics } from '../../schemas/topics.ts';
import { tableSql } from '../define.ts';
import type { PostgresProjection } from '../define.ts';

const DAY_MS = 86_400_000;

/**
 * Balances read from the chain for pairs that no indexed transfer moved, kept for repeated requests. Clients may
 * request any pair, so an answer is deleted by the first message of its partition that was appended a day later: of its
 * own partition, because a rebuild reads the partitions in another order.
 */
export const unmovedBalances: PostgresProjection<BalancesMessage> = {
  kind: 'postgres',
  name: 'unmoved-balances',
  version: 2,
  topic: topics.unmovedBalances,
  ddl: tableSql(import.meta.url),
  isExpiring: true,
  notify: { channel: OBSERVED_CHANNEL, payload: ({ account, token }) => `${account}:${token}` },
  // From version 1 too, which lacks the last column.
  carryOver: `INSERT INTO {{schema}}.answers SELECT * FROM {{previous_schema}}.answers ON CONFLICT DO NOTHING`,
  async fold(tx, message, { schema, partition, timestamp }) {
    const { account, token, block, block_hash, observed_at, requested_at } = message;
    const [balance, reason] =
      message.type === 'balance.observed' ? [message.balance, null] : [null, storable(message.reason)];
    await tx.query(
      `DELETE FROM ${schema}.answers WHERE stored_at < $1 AND (partition = $2 OR partition IS NULL)`,
      [timestamp - DAY_MS, partition],
    );
    await tx.query(
      `INSERT INTO ${schema}.answers AS known
         (account, token, block, block_hash, balance, reason, observed_at, requested_at, stored_at, partition)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
       ON CONFLICT (account, token) DO UPDATE SET block = excluded.block, block_hash = excluded.block_hash,
         balance = excluded.balance, reason = excluded.reason, observed_at = excluded.observed_at,
         requested_at = greatest(known.requested_at, excluded.requested_at), stored_at = excluded.stored_at,
         partition = excluded.partition
       WHERE known.stored_at <= excluded.stored_at`,
      [account, token, block, block_hash, balance, reason, observed_at, requested_at, timestamp, partition],
    );
  },
};
