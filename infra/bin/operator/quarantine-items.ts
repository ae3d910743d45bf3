import { requestRepairs } from '../../../pipeline/ingest/repair/requests.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { quarantineEntries, quarantineEntry } from '../../../projections/quarantine/queries.ts';
import type { QuarantineEntry, QuarantineFilter } from '../../../projections/quarantine/queries.ts';
import { AppError } from '../../../schemas/errors.ts';
import { messageId, parseMessageId, quarantineResolved } from '../../../schemas/messages/quarantine.ts';
import type { MessageRef } from '../../../schemas/messages/quarantine.ts';
import { topics } from '../../../schemas/topics.ts';
import type { Publisher } from '../../kafka/client.ts';
import type { Pool, Sql } from '../../postgres/client.ts';
import { pollUntil } from '../../retry.ts';
import { projectionHalts } from '../../health/service-health.ts';
import type { Halt } from '../../health/service-health.ts';

/** A token event that cannot be decoded, or a message that halts its partition. */
export interface QuarantineItem {
  readonly id: string;
  readonly kind: 'event' | 'message';
  readonly where: string;
  readonly reason: string;
  readonly since: string;
  /** When it was last tried again, and failed for `reason`; null: it was not. */
  readonly last_tried: string | null;
  readonly state: 'open' | 'reverted' | 'repaired' | 'skipped';
  /** Projections that are halted at this message and fall behind. */
  readonly halts: readonly string[];
  /** Projections whose rebuild ended at this message; the next run reads it again. */
  readonly rebuilds: readonly string[];
  /** Its entry in the read model; null while the projection of the quarantine is behind or halted. */
  readonly entry: QuarantineEntry | null;
}

/** Time for the projection to store a resolution. */
const RESOLVED_TIMEOUT_MS = 10_000;

/**
 * Newest first. Messages that halt a partition are listed even if the read model has no entry of them, before the first
 * entry.
 */
export async function listQuarantine(pool: Sql, filter: QuarantineFilter): Promise<QuarantineItem[]> {
  const [served, halts] = await Promise.all([servedBuilds(pool), allHalts(pool)]);
  const entries = await quarantineEntries(pool, served.schema('quarantine'), filter);
  const known = new Set(entries.map(({ id }) => id));
  const hasMessages =
    filter.kind !== 'event' &&
    filter.contract === undefined &&
    filter.block === undefined &&
    filter.after === undefined;
  const unlisted = [...new Set(hasMessages ? halts.map(idOfHalt) : [])].filter((id) => !known.has(id));
  return [
    ...unlisted.map((id) => itemOf(id, null, halts)),
    ...entries.map((one) => itemOf(one.id, one, halts)),
  ];
}

/** @throws `NOT_FOUND` if the quarantine never had an entry with that id */
export async function findQuarantined(pool: Sql, id: string): Promise<QuarantineItem> {
  const [served, halts] = await Promise.all([servedBuilds(pool), allHalts(pool)]);
  const entry = await quarantineEntry(pool, served.schema('quarantine'), id);
  if (entry === null && !halts.some((halt) => idOfHalt(halt) === id)) {
    throw new AppError(
      'NOT_FOUND',
      `No quarantine entry has the id ${id}; \`tds quarantine list\` shows them`,
    );
  }
  return itemOf(id, entry, halts);
}

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
  return `Asked the ingester to repair block ${height}, which contains the event; \`tds quarantine show\` reports the outcome.`;
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
  const isResolved = async (): Promise<true | null> =>
    (await findQuarantined(pool, id)).state === 'open' ? null : true;
  const resolved = await pollUntil(isResolved, (found) => found !== null, {
    everyMs: 100,
    withinMs: RESOLVED_TIMEOUT_MS,
  });
  return resolved === null
    ? `${id} will be shown as skipped once its projection has processed that.`
    : `${id} is skipped.`;
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

async function allHalts(db: Sql): Promise<Halt[]> {
  const halts = await projectionHalts(db, { shadows: true });
  return halts.toSorted((a, b) => b.halted_at.getTime() - a.halted_at.getTime());
}

function idOfHalt({ topic, partition, message_offset: offset }: Halt): string {
  return messageId({ topic, partition, offset });
}

function itemOf(id: string, entry: QuarantineEntry | null, all: readonly Halt[]): QuarantineItem {
  const halts = all.filter((halt) => idOfHalt(halt) === id);
  const haltedIn = (wanted: Halt['state']): string[] => [
    ...new Set(halts.filter(({ state }) => state === wanted).map(({ projection }) => projection)),
  ];
  const place = parseMessageId(id);
  return {
    id,
    kind: entry?.kind ?? 'message',
    where:
      entry?.kind === 'event'
        ? `block ${entry.block}, event ${entry.position} of ${entry.event?.from_address ?? 'a contract'}`
        : `${place?.topic}, partition ${place?.partition}, offset ${place?.offset}`,
    reason: entry?.reason ?? halts[0]?.reason ?? '',
    since: new Date(entry?.quarantined_at ?? halts[0]?.halted_at ?? 0).toISOString(),
    last_tried:
      entry === null || entry.last_tried_at === entry.quarantined_at
        ? null
        : new Date(entry.last_tried_at).toISOString(),
    // A message that halts a projection is open even if it was resolved before.
    state: halts.length > 0 ? 'open' : (entry?.resolution ?? 'open'),
    halts: haltedIn('serving'),
    rebuilds: haltedIn('building'),
    entry,
  };
}
