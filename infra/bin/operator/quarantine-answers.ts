import type { QuarantinePage } from '../../../api/admin/operator.ts';
import { countQuarantineEntries } from '../../../projections/quarantine/queries.ts';
import type { QuarantineFilter } from '../../../projections/quarantine/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import type { QuarantineDetail } from '../../../schemas/api/admin/quarantine.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { parseMessageId } from '../../../schemas/messages/quarantine.ts';
import type { Sql } from '../../postgres/client.ts';
import { listQuarantine, withoutEntry } from './quarantine-items.ts';
import { SHOWN_CHARACTERS, showQuarantined } from './quarantine-show.ts';
import type { ShownEvent } from './quarantine-show.ts';

/** A page of the quarantine, as the API shows it. */
export async function findQuarantinePage(pool: Sql, filter: QuarantineFilter): Promise<QuarantinePage> {
  const schema = (await servedBuilds(pool)).schema('quarantine');
  const [{ unlisted, entries: listed }, stored] = await Promise.all([
    listQuarantine(pool, { ...filter, limit: filter.limit + 1 }),
    countQuarantineEntries(pool, schema, filter),
  ]);
  const page = [...(filter.after === undefined ? unlisted : []), ...listed.slice(0, filter.limit)];
  const last = page.at(-1)?.entry ?? null;
  return {
    items: page.map(withoutEntry),
    count: stored + unlisted.length,
    next:
      listed.length > filter.limit && last !== null
        ? { quarantinedAt: last.quarantined_at, id: last.id }
        : null,
  };
}

/** Everything known about an entry, without a read of the log. */
export async function showQuarantineDetail(pool: Sql, id: string): Promise<QuarantineDetail> {
  const shown = await showQuarantined({ pool, kafka: null }, id);
  const place = parseMessageId(id);
  const value = Buffer.from(shown.item.entry?.value ?? '', 'base64').toString('utf8');
  return {
    ...withoutEntry(shown.item),
    resolved_at: shown.resolved_at,
    event: shown.event === null ? null : presentEvent(shown.event),
    message:
      shown.message === null
        ? null
        : {
            topic: place?.topic ?? null,
            partition: place?.partition ?? null,
            offset: place?.offset ?? null,
            text: value.slice(0, SHOWN_CHARACTERS),
          },
  };
}

function presentEvent(shown: ShownEvent): NonNullable<QuarantineDetail['event']> {
  const { contract, event, expected, readings, pending_repair: repair } = shown;
  const place = ({ part, index }: ShownEvent['expected'][number]['from']): string => `${part}[${index}]`;
  return {
    block: shown.block ?? 0,
    block_hash: shown.block_hash ?? toFelt(0n),
    position: shown.position ?? 0,
    transaction_hash: shown.transaction_hash ?? toFelt(0n),
    contract: {
      address: contract.address,
      standard: contract.facts?.standard ?? null,
      class_hash: contract.facts?.class_hash ?? null,
      basis: contract.facts?.basis ?? null,
    },
    raw: { from_address: event.from_address, keys: [...event.keys], data: [...event.data] },
    selectors: [...shown.selectors],
    expected: expected.map(({ event: name, keys, data, from, to }) => ({
      event: name,
      keys,
      data: data === 'spans' ? null : data,
      from: place(from),
      to: place(to),
    })),
    readings: readings.map(({ transfers, ...rest }) => ({ ...rest, transfers: [...transfers] })),
    pending_repair:
      repair === null
        ? null
        : {
            requested_at: repair.requested_at.toISOString(),
            attempts: repair.attempts,
            next_try_at: repair.next_try_at.toISOString(),
          },
  };
}
