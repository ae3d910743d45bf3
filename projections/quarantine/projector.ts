import { topics } from '../../schemas/topics.ts';
import type { QuarantineMessage } from '../../schemas/messages/quarantine.ts';
import { storable } from '../../schemas/text.ts';
import { tableSql } from '../define.ts';
import type { PostgresProjection } from '../define.ts';

/**
 * What stays as it is when it was tried again, and failed: an entry that is open, and an event that an operator has skipped, as
 * its block may be repaired because of another event in it.
 */
const STAYS = `(entries.resolution IS NULL OR (entries.kind = 'event' AND entries.resolution = 'skipped'))`;
const TRIED_AGAIN = `ON CONFLICT (id) DO UPDATE SET reason = excluded.reason, event = excluded.event, value = excluded.value,
  last_tried_at = excluded.last_tried_at,
  quarantined_at = CASE WHEN ${STAYS} THEN entries.quarantined_at ELSE excluded.quarantined_at END,
  resolution = CASE WHEN ${STAYS} THEN entries.resolution END,
  resolved_at = CASE WHEN ${STAYS} THEN entries.resolved_at END`;

/**
 * Entries by id: an entry quarantined twice is one entry, and opens again when it is quarantined after it was reverted or
 * repaired.
 */
export const quarantine: PostgresProjection<QuarantineMessage> = {
  kind: 'postgres',
  name: 'quarantine',
  version: 3,
  topic: { ...topics.quarantine, minBytes: 100_000 },
  ddl: tableSql(import.meta.url),
  async fold(tx, message, { schema }) {
    switch (message.type) {
      case 'event.quarantined':
        await tx.query(
          `INSERT INTO ${schema}.entries
             (id, kind, reason, quarantined_at, last_tried_at, block, block_hash, position, transaction_hash, event)
           VALUES ($1, 'event', $2, $3, $3, $4, $5, $6, $7, $8) ${TRIED_AGAIN}`,
          [
            storable(message.id),
            storable(message.reason),
            message.quarantined_at,
            message.block,
            message.block_hash,
            message.position,
            message.transaction_hash,
            JSON.stringify(message.event),
          ],
        );
        return;
      case 'message.quarantined':
        await tx.query(
          `INSERT INTO ${schema}.entries
             (id, kind, reason, quarantined_at, last_tried_at, topic, partition, message_offset, value)
           VALUES ($1, 'message', $2, $3, $3, $4, $5, $6, $7) ${TRIED_AGAIN}`,
          [
            storable(message.id),
            storable(message.reason),
            message.quarantined_at,
            storable(message.topic),
            message.partition,
            storable(message.offset),
            storable(message.value),
          ],
        );
        return;
      case 'quarantine.resolved':
        await tx.query(
          `UPDATE ${schema}.entries SET resolution = $2, resolved_at = $3 WHERE id = $1 AND resolution IS NULL`,
          [storable(message.id), message.resolution, message.resolved_at],
        );
        return;
    }
  },
};
