import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { PoolClient } from '../../infra/postgres/client.ts';
import { CATALOGUE_KINDS } from '../../schemas/catalogue.ts';
import type { CatalogueKind } from '../../schemas/catalogue.ts';
import type { CommandOf } from '../../schemas/messages/commands.ts';
import { accept, refuse } from '../commands.ts';
import type { Outcome } from '../commands.ts';
import { recountDomains, recountWallets } from './counts.ts';
import type { RecordCounts } from './files.ts';
import { mergeOf } from './records.ts';
import { wordsOf } from './words.ts';

const partRow = z.object({ part: z.number(), kinds: z.array(z.enum(CATALOGUE_KINDS)) });

/** Stores a part until its import arrives. */
export async function keepPart(
  tx: PoolClient,
  schema: string,
  { body, issued_at: at }: CommandOf<'catalogue.part'>,
): Promise<Outcome> {
  await tx.query(
    `INSERT INTO ${schema}.import_parts (import_id, part, records, issued_at) VALUES ($1, $2, $3, $4)
     ON CONFLICT DO NOTHING`,
    [body.import_id, body.part, JSON.stringify(body.records), at],
  );
  return accept({}).outcome;
}

/** Imports every part, or nothing. Of two records of one entry, the later counts. */
export async function takeImport(
  tx: PoolClient,
  schema: string,
  { body, issued_at: at }: CommandOf<'catalogue.import'>,
  changed: number,
): Promise<Outcome> {
  const { import_id: importId, parts: expected } = body;
  const parts = await sqlRows(
    tx,
    partRow,
    `SELECT part, ARRAY(SELECT jsonb_object_keys(records)) AS kinds FROM ${schema}.import_parts
     WHERE import_id = $1 AND part < $2 ORDER BY part`,
    [importId, expected],
  );
  if (parts.length !== expected) return refuse('CONFLICT', 'Parts of the import are missing.').outcome;
  const unknown = await unknownCategories(tx, schema, importId);
  if (unknown.length > 0) {
    return refuse('NOT_FOUND', `No category has the slug ${unknown.join(', ')}.`, { categories: unknown })
      .outcome;
  }
  const counts: Partial<Record<CatalogueKind, RecordCounts>> = {};
  for (const { part, kinds } of parts) {
    for (const kind of CATALOGUE_KINDS.filter((one) => kinds.includes(one))) {
      const sum = (counts[kind] ??= { created: 0, changed: 0, unchanged: 0 });
      const done = await takeRecords(tx, schema, { kind, importId, part, at, changed });
      sum.created += done.created;
      sum.changed += done.changed;
      sum.unchanged += done.unchanged;
    }
  }
  if (counts.domains !== undefined) await recountDomains(tx, schema);
  if (counts.wallets !== undefined) await recountWallets(tx, schema);
  await tx.query(`DELETE FROM ${schema}.import_parts WHERE import_id = $1`, [importId]);
  return accept({ ...counts }).outcome;
}

/** Slugs that dApps and ads of an import name, and that no category has, neither in the import nor before it. */
async function unknownCategories(tx: PoolClient, schema: string, importId: string): Promise<string[]> {
  const rows = await sqlRows(
    tx,
    z.object({ slug: z.string() }),
    `WITH sent AS (SELECT records FROM ${schema}.import_parts WHERE import_id = $1)
     SELECT one->>'category' AS slug
     FROM sent, jsonb_array_elements(coalesce(records->'dapps', '[]') || coalesce(records->'ads', '[]')) AS one
     WHERE one->>'category' IS NOT NULL
     EXCEPT (
       SELECT slug FROM ${schema}.categories
       UNION ALL
       SELECT one->>'slug' FROM sent, jsonb_array_elements(coalesce(records->'categories', '[]')) AS one
     )
     ORDER BY slug`,
    [importId],
  );
  return rows.map(({ slug }) => slug);
}

/** The offset, plus one, of the import's command. */
const CHANGED = '$4::bigint';

/**
 * SQL of a column that the projection adds beside the id and the times: its value for a new entry, and for a changed one.
 */
interface Added {
  readonly made: string;
  readonly updated?: string;
}
const ADDED: Partial<Record<CatalogueKind, Readonly<Record<string, Added>>>> = {
  domains: {
    changed: { made: CHANGED },
    in_force_since: {
      made: `CASE WHEN ${inForce('sent')} THEN ${CHANGED} END`,
      updated: `CASE WHEN ${inForce('sent')} THEN coalesce(known.in_force_since, ${CHANGED}) END`,
    },
  },
  dapps: { words: { made: wordsOf('sent') } },
};

/** SQL of the condition that a domain is in force: active, and not pending. */
function inForce(row: string): string {
  return `${row}.active AND ${row}.status <> 'pending'`;
}

interface Batch {
  readonly kind: CatalogueKind;
  readonly importId: string;
  readonly part: number;
  /** Unix milliseconds. */
  readonly at: number;
  /** The offset, plus one, of the import's command. */
  readonly changed: number;
}

async function takeRecords(
  tx: PoolClient,
  schema: string,
  { kind, importId, part, at, changed }: Batch,
): Promise<RecordCounts> {
  const table = `${schema}.${kind}`;
  const { keys, fields, rest, become, isSame, isChanged } = mergeOf(kind);
  const added = Object.entries(ADDED[kind] ?? {});
  const sent = `sent AS (
    SELECT DISTINCT ON (${keys.join(', ')}) record.*, place
    FROM ${schema}.import_parts, jsonb_array_elements(records->'${kind}') WITH ORDINALITY AS one (value, place),
      jsonb_populate_record(NULL::${table}, value) AS record
    WHERE import_id = $1 AND part = $2
    ORDER BY ${keys.join(', ')}, place DESC
  )`;
  const values = [
    importId,
    part,
    at,
    ...(added.some(([, { made }]) => made.includes(CHANGED)) ? [changed] : []),
  ];
  const updated = await tx.query(
    `WITH ${sent}
     UPDATE ${table} AS known
     SET ${rest.map((field) => `${field} = ${become(field)}`).join(', ')},
       updated_at = $3${added.map(([column, { made, updated = made }]) => `, ${column} = ${updated}`).join('')}
     FROM sent WHERE ${isSame} AND ${isChanged}`,
    values,
  );
  const created = await tx.query(
    `WITH ${sent}
     INSERT INTO ${table} (id, ${[...fields, 'created_at', 'updated_at', ...added.map(([column]) => column)].join(', ')})
     SELECT (SELECT coalesce(max(id), 0) FROM ${table}) + row_number() OVER (ORDER BY place),
       ${fields.map((field) => `sent.${field}`).join(', ')}, $3, $3${added.map(([, { made }]) => `, ${made}`).join('')}
     FROM sent WHERE NOT EXISTS (SELECT 1 FROM ${table} AS known WHERE ${isSame})`,
    values,
  );
  const all = await sqlRows(
    tx,
    z.object({ distinct: z.number() }),
    `WITH ${sent} SELECT count(*) AS distinct FROM sent`,
    [importId, part],
  );
  const counts = { created: created.rowCount ?? 0, changed: updated.rowCount ?? 0 };
  return { ...counts, unchanged: (all[0]?.distinct ?? 0) - counts.created - counts.changed };
}
