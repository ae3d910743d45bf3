import { servedBuilds } from '../../../projections/served.ts';
import { knownEntries, quarantineEntries, quarantineEntry } from '../../../projections/quarantine/queries.ts';
import type { QuarantineEntry, QuarantineFilter } from '../../../projections/quarantine/queries.ts';
import type { QuarantineItem } from '../../../schemas/api/admin/quarantine.ts';
import { AppError } from '../../../schemas/errors.ts';
import { messageId, parseMessageId } from '../../../schemas/messages/quarantine.ts';
import type { Sql } from '../../postgres/client.ts';
import { projectionHalts } from '../../health/service-health.ts';
import type { ProjectionHalt } from '../../health/service-health.ts';

/** A token event that cannot be decoded, or a message that halts its partition. */
export interface StoredItem extends QuarantineItem {
  /** Its entry in the read model; null while the projection of the quarantine is behind or halted. */
  readonly entry: QuarantineEntry | null;
}

/**
 * Entries, newest first, and the messages that halt a partition and have no entry in the read model, which come before the first
 * entry.
 */
export async function listQuarantine(
  pool: Sql,
  filter: QuarantineFilter,
): Promise<Readonly<Record<'unlisted' | 'entries', StoredItem[]>>> {
  const [served, halts] = await Promise.all([servedBuilds(pool), allHalts(pool)]);
  const schema = served.schema('quarantine');
  const hasMessages = filter.kind !== 'event' && filter.contract === undefined && filter.block === undefined;
  const halted = [...new Set(hasMessages ? halts.map(idOfHalt) : [])];
  const [entries, known] = await Promise.all([
    quarantineEntries(pool, schema, filter),
    knownEntries(pool, schema, filter, halted),
  ]);
  return {
    unlisted: halted.filter((id) => !known.has(id)).map((id) => itemOf(id, null, halts)),
    entries: entries.map((one) => itemOf(one.id, one, halts)),
  };
}

/** @throws `NOT_FOUND` if the quarantine never had an entry with that id */
export async function findQuarantined(pool: Sql, id: string): Promise<StoredItem> {
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

async function allHalts(db: Sql): Promise<ProjectionHalt[]> {
  const halts = await projectionHalts(db, { shadows: true });
  return halts.toSorted((a, b) => b.halted_at.getTime() - a.halted_at.getTime());
}

function idOfHalt({ topic, partition, message_offset: offset }: ProjectionHalt): string {
  return messageId({ topic, partition, offset });
}

function itemOf(id: string, entry: QuarantineEntry | null, all: readonly ProjectionHalt[]): StoredItem {
  const halts = all.filter((halt) => idOfHalt(halt) === id);
  const haltedIn = (wanted: ProjectionHalt['state']): string[] => [
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

export function withoutEntry({ entry: _entry, ...item }: StoredItem): QuarantineItem {
  return item;
}
