import { topics } from '../../schemas/topics.ts';
import type { BalancesMessage } from '../../schemas/messages/balances.ts';
import { OBSERVED_CHANNEL } from '../../schemas/messages/requests.ts';
import { storable } from '../../schemas/text.ts';
import { tableSql } from '../define.ts';
import type { PostgresProjection } from '../define.ts';

const KEPT = 32;
const KEPT_ON_L1 = 4;
/** An answer as of a block is based on the oldest read that still counts: these are kept for good. */
const KEPT_OLDEST = 4;

/**
 * Balances read from the chain. All messages about a pair are in one partition, so they are folded in the order of the
 * reads; of two reads at one block, the later counts.
 */
export const balances: PostgresProjection<BalancesMessage> = {
  kind: 'postgres',
  name: 'balances',
  version: 2,
  topic: topics.balances,
  ddl: tableSql(import.meta.url),
  notify: { channel: OBSERVED_CHANNEL, payload: ({ account, token }) => `${account}:${token}` },
  async fold(tx, message, { schema }) {
    const { account, token, block, block_hash, observed_at, requested_at, l1_height } = message;
    switch (message.type) {
      case 'balance.observed':
        await tx.query(
          `INSERT INTO ${schema}.anchors AS known (account, token, block, block_hash, balance, observed_at, requested_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7)
           ON CONFLICT (account, token, block, block_hash) DO UPDATE SET balance = excluded.balance,
             observed_at = excluded.observed_at,
             requested_at = greatest(known.requested_at, excluded.requested_at)`,
          [account, token, block, block_hash, message.balance, observed_at, requested_at],
        );
        await tx.query(
          `DELETE FROM ${schema}.anchors USING (
             SELECT block, block_hash, row_number() OVER (ORDER BY block DESC, block_hash) AS nth,
               row_number() OVER (ORDER BY block, block_hash) AS nth_oldest,
               row_number() OVER (PARTITION BY block <= $3 ORDER BY block DESC, block_hash) AS nth_of_kind
             FROM ${schema}.anchors WHERE account = $1 AND token = $2
           ) AS ranked
           WHERE account = $1 AND token = $2 AND anchors.block = ranked.block
             AND anchors.block_hash = ranked.block_hash AND nth > ${KEPT} AND nth_oldest > ${KEPT_OLDEST}
             AND NOT (ranked.block <= $3 AND nth_of_kind <= ${KEPT_ON_L1})`,
          [account, token, l1_height ?? -1],
        );
        await tx.query(`DELETE FROM ${schema}.refusals WHERE account = $1 AND token = $2`, [account, token]);
        return;
      case 'balance.refused':
        await tx.query(
          `INSERT INTO ${schema}.refusals AS known
             (account, token, reason, block, block_hash, refused_at, requested_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7)
           ON CONFLICT (account, token) DO UPDATE SET reason = excluded.reason, block = excluded.block,
             block_hash = excluded.block_hash, refused_at = excluded.refused_at,
             requested_at = greatest(known.requested_at, excluded.requested_at)`,
          [account, token, storable(message.reason), block, block_hash, observed_at, requested_at],
        );
        return;
    }
  },
};
