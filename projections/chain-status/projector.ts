import { topics } from '../../schemas/topics.ts';
import { INDEXED_CHANNEL } from '../../schemas/messages/chain-status.ts';
import type { ChainStatusMessage } from '../../schemas/messages/chain-status.ts';
import { storable } from '../../schemas/text.ts';
import { tableSql } from '../define.ts';
import type { PostgresProjection } from '../define.ts';

/** The network, its head, the height accepted on L1, and the chunks. */
export const chainStatus: PostgresProjection<ChainStatusMessage> = {
  kind: 'postgres',
  name: 'chain-status',
  version: 2,
  topic: topics.chainStatus,
  ddl: tableSql(import.meta.url),
  notify: { channel: INDEXED_CHANNEL, payload: ({ type }) => (type === 'l1.accepted' ? '' : null) },
  async fold(tx, message, { schema }) {
    switch (message.type) {
      case 'network.identified':
        await tx.query(
          `UPDATE ${schema}.status SET chain_id = $1, spec_version = $2, has_header_counts = $3, has_l1_tag = $4`,
          [message.chain_id, storable(message.spec_version), message.has_header_counts, message.has_l1_tag],
        );
        return;
      case 'head.seen':
        await tx.query(`UPDATE ${schema}.status SET head_height = $1, head_hash = $2, head_seen_at = $3`, [
          message.height,
          message.hash,
          message.observed_at,
        ]);
        return;
      case 'l1.accepted':
        // A node that is behind reports a lower height; the higher one stays true.
        await tx.query(
          `UPDATE ${schema}.status SET l1_height = $1, l1_seen_at = $2 WHERE l1_height IS NULL OR l1_height < $1`,
          [message.height, message.observed_at],
        );
        if (message.final === undefined) return;
        // The ingester repeats a height after a restart, with later ends.
        await tx.query(
          `INSERT INTO ${schema}.final_heights (height, log_ends) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
          [message.final.height, message.final.log_ends],
        );
        return;
      case 'chunk.opened':
        // Repeated after a restart, the message changes nothing; with another range, it reopens the chunk.
        await tx.query(
          `INSERT INTO ${schema}.chunks AS known (name, first_height, last_height, opened_at) VALUES ($1, $2, $3, $4)
           ON CONFLICT (name) DO UPDATE SET first_height = excluded.first_height, last_height = excluded.last_height,
             opened_at = excluded.opened_at, finished_at = NULL
           WHERE known.first_height <> excluded.first_height
              OR known.last_height IS DISTINCT FROM excluded.last_height`,
          [storable(message.name), message.start, message.end, message.observed_at],
        );
        return;
      case 'chunk.finished':
        await tx.query(
          `UPDATE ${schema}.chunks SET finished_at = $2 WHERE name = $1 AND finished_at IS NULL`,
          [storable(message.name), message.observed_at],
        );
        return;
    }
  },
};
