import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { catalogueRecord } from '../../schemas/catalogue.ts';
import type { CatalogueKind, CatalogueRecord } from '../../schemas/catalogue.ts';
import { mergeOf } from './records.ts';

/** Read side of operators' files: exports the catalogue as records, and previews an import. */

const countsRow = z.object({ created: z.number(), changed: z.number(), unchanged: z.number() });
/** Numbers of entries, by the effect of the import. */
export type RecordCounts = z.infer<typeof countsRow>;

/** Counts what an import of these records would change; no two of them may name one entry. */
export async function compareRecords(
  db: Sql,
  schema: string,
  kind: CatalogueKind,
  records: readonly CatalogueRecord<CatalogueKind>[],
): Promise<RecordCounts> {
  const { isSame, isChanged } = mergeOf(kind);
  const table = `${schema}.${kind}`;
  const [counts] = await sqlRows(
    db,
    countsRow,
    `WITH sent AS (
       SELECT record.* FROM jsonb_array_elements($1::jsonb) AS one (value),
         jsonb_populate_record(NULL::${table}, value) AS record
     )
     SELECT count(*) FILTER (WHERE known.id IS NULL) AS created,
       count(*) FILTER (WHERE known.id IS NOT NULL AND ${isChanged}) AS changed,
       count(*) FILTER (WHERE known.id IS NOT NULL AND NOT (${isChanged})) AS unchanged
     FROM sent LEFT JOIN ${table} AS known ON ${isSame}`,
    [JSON.stringify(records)],
  );
  return counts ?? { created: 0, changed: 0, unchanged: 0 };
}

/** Slugs without a category. */
export async function unknownCategories(
  db: Sql,
  schema: string,
  slugs: readonly string[],
): Promise<string[]> {
  const rows = await sqlRows(
    db,
    z.object({ slug: z.string() }),
    `SELECT slug FROM unnest($1::text[]) AS asked (slug) EXCEPT SELECT slug FROM ${schema}.categories ORDER BY slug`,
    [slugs],
  );
  return rows.map(({ slug }) => slug);
}

/** True when no entry of these kinds was ever listed. */
export async function isEmptyOf(db: Sql, schema: string, kinds: readonly CatalogueKind[]): Promise<boolean> {
  const anything = kinds.map((kind) => `EXISTS (SELECT 1 FROM ${schema}.${kind})`).join(' OR ');
  const [row] = await sqlRows(db, z.object({ has_any: z.boolean() }), `SELECT ${anything} AS has_any`);
  return row?.has_any === false;
}

const PAGE_ROWS = 1000;

/**
 * All records of a kind, in listing order. Run in a repeatable-read transaction to read all kinds from one snapshot.
 */
export async function* recordsOf<K extends CatalogueKind>(
  db: Sql,
  schema: string,
  kind: K,
): AsyncIterable<CatalogueRecord<CatalogueKind>> {
  const record = catalogueRecord[kind];
  const row = z.object({ entry_id: z.number(), ...record.shape });
  for (let after = 0; ;) {
    const rows = await sqlRows(
      db,
      row,
      `SELECT id AS entry_id, ${Object.keys(record.shape).join(', ')} FROM ${schema}.${kind}
       WHERE id > $1 ORDER BY id LIMIT ${PAGE_ROWS}`,
      [after],
    );
    for (const { entry_id: id, ...fields } of rows) {
      after = id;
      yield fields as unknown as CatalogueRecord<CatalogueKind>;
    }
    if (rows.length < PAGE_ROWS) return;
  }
}
