import { requestRepairs } from '../../../pipeline/ingest/repair/requests.ts';
import type { QuarantineItem } from '../../../schemas/api/admin/quarantine.ts';
import { AppError } from '../../../schemas/errors.ts';
import { parseMessageId, quarantineResolved } from '../../../schemas/messages/quarantine.ts';
import type { MessageRef } from '../../../schemas/messages/quarantine.ts';
import { topics } from '../../../schemas/topics.ts';
import type { Publisher } from '../../kafka/client.ts';
import type { Pool } from '../../postgres/client.ts';
import { pollUntil } from '../../retry.ts';
import { findQuarantined } from './quarantine-items.ts';

/** Time for the projection to store a resolution. */
const RESOLVED_TIMEOUT_MS = 10_000;

/**
 * Retries an entry: the ingester reverts the block of an event and accepts it again; projections that are halted at a
 * message read it again.
 */
export async function retryQuarantined(pool: Pool, id: string): Promise<string> {
  const item = await findQuarantined(pool, id);
  if (item.kind === 'message') {
    const { topic, partition, offset } = haltingPlace(item);
    await pool.query(
      'DELETE FROM tds.projection_halts WHERE topic = $1 AND partition = $2 AND message_offset = $3',
      [topic, partition, offset],
    );
    return `${readersOf(item)} will read ${id} again, and halt again if it cannot be parsed.`;
  }
  assertOpen(item);
  const height = item.entry?.block ?? null;
  if (height === null) throw new AppError('CONFLICT', `${id} has no height`);
  await requestRepairs(pool, [height], `quarantine ${id}`);
  return `Requested a repair of block ${height}, which contains the event; \`tds quarantine show\` reports the outcome.`;
}

/**
 * Skips an entry: the projections that are halted at a message skip it, now and in every rebuild; an event is resolved as
 * skipped, which changes no table.
 */
export async function skipQuarantined(
  { pool, publisher, now }: { pool: Pool; publisher: Pick<Publisher, 'publish'>; now: () => number },
  id: string,
): Promise<string> {
  const item = await findQuarantined(pool, id);
  const resolve = async (): Promise<void> => {
    await publisher.publish(topics.quarantine, [
      { key: id, value: quarantineResolved(id, 'skipped', now()) },
    ]);
  };
  if (item.kind === 'message') {
    const { topic, partition, offset } = haltingPlace(item);
    await pool.query(
      `INSERT INTO tds.skips (projection, topic, partition, message_offset)
       SELECT DISTINCT projection, topic, partition, message_offset FROM tds.projection_halts
       WHERE topic = $1 AND partition = $2 AND message_offset = $3 ON CONFLICT DO NOTHING`,
      [topic, partition, offset],
    );
    // Projections that start later skip it, too.
    await resolve();
    return `${namesOf(item).join(', ')} will skip ${id}, also in a rebuild.`;
  }
  assertOpen(item);
  await resolve();
  const isResolved = async (): Promise<boolean> => (await findQuarantined(pool, id)).state !== 'open';
  const resolved = await pollUntil(isResolved, (done) => done, {
    everyMs: 100,
    withinMs: RESOLVED_TIMEOUT_MS,
  });
  return resolved
    ? `${id} is skipped.`
    : `${id} will be shown as skipped once the projection quarantine has processed the request.`;
}

/** @throws `CONFLICT` if no projection is halted at the message */
function haltingPlace(item: QuarantineItem): MessageRef {
  const place = parseMessageId(item.id);
  if (place === null || namesOf(item).length === 0) {
    throw new AppError('CONFLICT', `No projection is halted at ${item.id}`);
  }
  return place;
}

function namesOf({ halts, rebuilds }: QuarantineItem): string[] {
  return [...new Set([...halts, ...rebuilds])];
}

/** The projections that will read the message again. A rebuild that ended at it must be run again. */
function readersOf({ halts, rebuilds }: QuarantineItem): string {
  if (rebuilds.length === 0) return halts.join(', ');
  const next = `next \`tds rebuild ${rebuilds.join(' ')}\``;
  return halts.length === 0 ? `The ${next}` : `${halts.join(', ')} and the ${next}`;
}

function assertOpen({ id, state }: QuarantineItem): void {
  if (state !== 'open') throw new AppError('CONFLICT', `${id} is already resolved: ${state}`);
}
