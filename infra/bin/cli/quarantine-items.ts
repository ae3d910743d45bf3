import { requestRepairs } from '../../../pipeline/ingest/repair/requests.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { quarantineEntries, quarantineEntry } from '../../../projections/quarantine/queries.ts';
import type { QuarantineEntry, QuarantineFilter } from '../../../projections/quarantine/queries.ts';
import { AppError } from '../../../schemas/errors.ts';
import { messageId, parseMessageId, quarantineResolved } from '../../../schemas/messages/quarantine.ts';
import type { MessageRef } from '../../../schemas/messages/quarantine.ts';
import { topics } from '../../../schemas/topics.ts';
import type { Publisher } from '../../kafka/client.ts';
import { pause } from '../../lifecycle.ts';
import type { Pool, Sql } from '../../postgres/client.ts';
import { projectionHalts } from '../../health/service-health.ts';
import type { Halt } from '../../health/service-health.ts';

/** One thing that was not understood: a token event, or a message that halts its partition. */
export interface QuarantineItem {
  readonly id: string;
  readonly kind: 'event' | 'message';
  readonly where: string;
  readonly reason: string;
  readonly since: string;
  readonly state: 'open' | 'reverted' | 'repaired' | 'skipped';
  /** The projections that this message halts: what they serve is behind. */
  readonly halts: readonly string[];
  /** The projections whose rebuild this message halts: it has ended, and the next run of it comes to the message again. */
  readonly rebuilds: readonly string[];
  /** What the read model has of it; null while the quarantine's own projection is behind, or is the one that is halted. */
  readonly entry: QuarantineEntry | null;
}

/** How long a settled entry may take to show. */
const SETTLED_WITHIN_MS = 10_000;
const LOOK_MS = 100;

/** Newest first. What halts a partition now is listed whether or not the read model has it. */
export async function listQuarantine(pool: Pool, filter: QuarantineFilter): Promise<QuarantineItem[]> {
  const [served, halts] = await Promise.all([servedBuilds(pool), allHalts(pool)]);
  const entries = await quarantineEntries(pool, served.schema('quarantine'), filter);
  const known = new Set(entries.map(({ id }) => id));
  const onlyMessages = filter.kind !== 'event' && filter.contract === undefined && filter.block === undefined;
  const unlisted = [...new Set(onlyMessages ? halts.map(idOfHalt) : [])].filter((id) => !known.has(id));
  return [
    ...unlisted.map((id) => itemOf(id, null, halts)),
    ...entries.map((one) => itemOf(one.id, one, halts)),
  ];
}

/** @throws `NOT_FOUND` when nothing of that id is, or was, in the quarantine */
export async function findQuarantined(pool: Pool, id: string): Promise<QuarantineItem> {
  const [served, halts] = await Promise.all([servedBuilds(pool), allHalts(pool)]);
  const entry = await quarantineEntry(pool, served.schema('quarantine'), id);
  if (entry === null && !halts.some((halt) => idOfHalt(halt) === id)) {
    throw new AppError('NOT_FOUND', `Nothing in the quarantine is called ${id}`);
  }
  return itemOf(id, entry, halts);
}

/**
 * Has it tried again: the block of an event is reverted and accepted again by the ingester; the projections that a message
 * halts read it once more.
 */
export async function retryQuarantined(pool: Pool, id: string): Promise<string> {
  const item = await findQuarantined(pool, id);
  if (item.kind === 'message') {
    const { topic, partition, offset } = haltingPlace(item);
    await pool.query(
      'DELETE FROM tds.projection_halts WHERE topic = $1 AND partition = $2 AND message_offset = $3',
      [topic, partition, offset],
    );
    return `${readersOf(item)} will read ${id} again; what cannot be read halts again.`;
  }
  assertOpen(item);
  const height = item.entry?.block ?? null;
  if (height === null) throw new AppError('CONFLICT', `${id} does not say its height`);
  await requestRepairs(pool, [height], `quarantine ${id}`);
  return `Asked the ingester to repair block ${height}, which contains the event; \`tds quarantine show\` reports the outcome.`;
}

/**
 * Has it passed over: a message by the projections that it halts, now and in every rebuild; an event is settled as skipped,
 * which changes no table.
 */
export async function skipQuarantined(
  { pool, publisher, now }: { pool: Pool; publisher: Pick<Publisher, 'publish'>; now: () => number },
  id: string,
): Promise<string> {
  const item = await findQuarantined(pool, id);
  const settle = async (): Promise<void> => {
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
    // Projections that start later pass over it without a word.
    await settle();
    return `${namesOf(item).join(', ')} will pass over ${id}, in a rebuild too.`;
  }
  assertOpen(item);
  await settle();
  for (const end = now() + SETTLED_WITHIN_MS; now() < end; await pause(LOOK_MS)) {
    if ((await findQuarantined(pool, id)).state !== 'open') return `${id} is settled as skipped.`;
  }
  return `${id} will show as skipped when its projection has read that.`;
}

/** @throws `CONFLICT` where the message halts nothing now */
function haltingPlace(item: QuarantineItem): MessageRef {
  const place = parseMessageId(item.id);
  if (place === null || namesOf(item).length === 0) {
    throw new AppError('CONFLICT', `${item.id} halts no projection now`);
  }
  return place;
}

function namesOf({ halts, rebuilds }: QuarantineItem): string[] {
  return [...new Set([...halts, ...rebuilds])];
}

/** Who comes to the message once it halts nothing any more. A rebuild that it halted has ended. */
function readersOf({ halts, rebuilds }: QuarantineItem): string {
  if (rebuilds.length === 0) return halts.join(', ');
  const next = `next \`tds rebuild ${rebuilds.join(' ')}\``;
  return halts.length === 0 ? `The ${next}` : `${halts.join(', ')} and the ${next}`;
}

function assertOpen({ id, state }: QuarantineItem): void {
  if (state !== 'open') throw new AppError('CONFLICT', `${id} is settled already: ${state}`);
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
    // What halts a projection now is open, whatever was said of it before.
    state: halts.length > 0 ? 'open' : (entry?.resolution ?? 'open'),
    halts: haltedIn('serving'),
    rebuilds: haltedIn('building'),
    entry,
  };
}
