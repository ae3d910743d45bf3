import { z } from 'zod';

import { countOf, sqlRow, sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { rawEvent } from '../../schemas/messages/chain-blocks.ts';
import { felt } from '../../schemas/messages/common.ts';

/** Read side of the quarantine. `schema` is the served build's: `served.schema('quarantine')`. */

const entryRow = z.object({
  id: z.string(),
  kind: z.enum(['event', 'message']),
  /** Of the last try. */
  reason: z.string(),
  /** Unix milliseconds. */
  quarantined_at: z.number(),
  /** When it last failed; `quarantined_at` unless it was tried again. */
  last_tried_at: z.number(),
  /** null while it is open. */
  resolution: z.enum(['reverted', 'repaired', 'skipped']).nullable(),
  resolved_at: z.number().nullable(),
  block: z.number().nullable(),
  block_hash: felt.nullable(),
  position: z.number().nullable(),
  transaction_hash: felt.nullable(),
  event: rawEvent.nullable(),
  topic: z.string().nullable(),
  partition: z.number().nullable(),
  message_offset: z.string().nullable(),
  /** Base64. */
  value: z.string().nullable(),
});
export type QuarantineEntry = z.infer<typeof entryRow>;

/** Version 1, which may be served until the read model is rebuilt, has no `last_tried_at`. */
const LAST_TRIED = `coalesce((to_jsonb(entries) ->> 'last_tried_at')::bigint, quarantined_at) AS last_tried_at`;
const COLUMNS = Object.keys(entryRow.shape)
  .map((name) => (name === 'last_tried_at' ? LAST_TRIED : name))
  .join(', ');

export interface QuarantineFilter {
  /** Only open entries. */
  readonly open: boolean;
  readonly limit: number;
  /** Entries after this one. */
  readonly after?: { readonly quarantinedAt: number; readonly id: string } | undefined;
  readonly kind?: QuarantineEntry['kind'] | undefined;
  /** Events of this contract. */
  readonly contract?: Felt | undefined;
  /** Events at this height. */
  readonly block?: number | undefined;
}

/** Newest first. */
export async function quarantineEntries(
  db: Sql,
  schema: string,
  filter: QuarantineFilter,
): Promise<QuarantineEntry[]> {
  const { limit, after } = filter;
  return await sqlRows(
    db,
    entryRow,
    `SELECT ${COLUMNS} FROM ${schema}.entries
     WHERE ${FILTER} AND ($6::bigint IS NULL OR quarantined_at < $6 OR (quarantined_at = $6 AND id > $7))
     ORDER BY quarantined_at DESC, id LIMIT $5`,
    [...filterValues(filter), limit, after?.quarantinedAt ?? null, after?.id ?? null],
  );
}

const FILTER = `($1::boolean IS FALSE OR resolution IS NULL) AND ($2::text IS NULL OR kind = $2)
  AND ($3::text IS NULL OR event ->> 'from_address' = $3) AND ($4::bigint IS NULL OR block = $4)`;

function filterValues({ open, kind, contract, block }: Omit<QuarantineFilter, 'limit'>): unknown[] {
  return [open, kind ?? null, contract ?? null, block ?? null];
}

/** The number of entries of a filter, whatever its limits. */
export async function countQuarantineEntries(
  db: Sql,
  schema: string,
  filter: Omit<QuarantineFilter, 'limit'>,
): Promise<number> {
  const sql = `SELECT count(*) AS n FROM ${schema}.entries WHERE ${FILTER}`;
  return await countOf(db, sql, filterValues(filter));
}

export async function quarantineEntry(db: Sql, schema: string, id: string): Promise<QuarantineEntry | null> {
  return await sqlRow(db, entryRow, `SELECT ${COLUMNS} FROM ${schema}.entries WHERE id = $1`, [id]);
}

/** Those of the ids whose entries pass the filter, whatever its limits. */
export async function knownEntries(
  db: Sql,
  schema: string,
  filter: QuarantineFilter,
  ids: readonly string[],
): Promise<ReadonlySet<string>> {
  const sql = `SELECT id FROM ${schema}.entries WHERE ${FILTER} AND id = ANY($5)`;
  const rows = await sqlRows(db, z.object({ id: z.string() }), sql, [...filterValues(filter), [...ids]]);
  return new Set(rows.map(({ id }) => id));
}

const countRow = z.object({ kind: z.enum(['event', 'message']), reason: z.string(), count: z.number() });
export type QuarantineCount = z.infer<typeof countRow>;

/** The 100 most frequent kinds and reasons of open entries, most frequent first. */
export async function quarantineCounts(db: Sql, schema: string): Promise<QuarantineCount[]> {
  return await sqlRows(
    db,
    countRow,
    `SELECT kind, reason, count(*) AS count FROM ${schema}.entries WHERE resolution IS NULL
     GROUP BY kind, reason ORDER BY count(*) DESC, kind, reason LIMIT 100`,
  );
}

const totalRow = z.object({ events: z.number(), contracts: z.number() });

/** Open entries of events, and how many different contracts emitted them. */
export async function quarantinedEvents(db: Sql, schema: string): Promise<z.infer<typeof totalRow>> {
  const [row] = await sqlRows(
    db,
    totalRow,
    `SELECT count(*) AS events, count(DISTINCT event ->> 'from_address') AS contracts FROM ${schema}.entries
     WHERE kind = 'event' AND resolution IS NULL`,
    [],
  );
  return row ?? { events: 0, contracts: 0 };
}

/** Every height at which an event of a contract is quarantined and open, lowest first. */
export async function quarantinedHeights(db: Sql, schema: string, contract: Felt): Promise<number[]> {
  const rows = await sqlRows(
    db,
    z.object({ block: z.number() }),
    `SELECT DISTINCT block FROM ${schema}.entries
     WHERE kind = 'event' AND resolution IS NULL AND event ->> 'from_address' = $1 ORDER BY block`,
    [contract],
  );
  return rows.map(({ block }) => block);
}
