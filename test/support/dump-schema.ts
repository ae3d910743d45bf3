import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';

/** The schemas of both databases as SQL, in an order independent of creation. */

const OWN_SCHEMAS = `n.nspname NOT IN ('public', 'information_schema') AND n.nspname !~ '^pg_'`;

const relationRow = z.object({ name: z.string(), kind: z.enum(['r', 'v']), lines: z.array(z.string()) });
const definitionRow = z.object({ definition: z.string() });

/** Tables with columns and constraints, views, indexes, functions and triggers of every schema of the service. */
export async function dumpPostgres(db: Sql): Promise<string> {
  const relations = await sqlRows(
    db,
    relationRow,
    `SELECT c.oid::regclass::text AS name, c.relkind AS kind, CASE c.relkind
         WHEN 'v' THEN ARRAY[pg_get_viewdef(c.oid, true)]
         ELSE coalesce((SELECT array_agg(format('%s %s%s%s', quote_ident(a.attname), format_type(a.atttypid, a.atttypmod),
             CASE
               WHEN a.attgenerated = 's' THEN format(' GENERATED ALWAYS AS (%s) STORED', pg_get_expr(d.adbin, d.adrelid))
               WHEN a.attidentity <> '' THEN ' GENERATED AS IDENTITY'
               WHEN d.adbin IS NOT NULL THEN ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid)
               ELSE '' END,
             CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END) ORDER BY a.attnum)
           FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '{}')
         || coalesce((SELECT array_agg(format('CONSTRAINT %s %s', quote_ident(k.conname), pg_get_constraintdef(k.oid))
             ORDER BY k.conname)
           FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype <> 'n'), '{}')
       END AS lines
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE ${OWN_SCHEMAS} AND c.relkind IN ('r', 'v') ORDER BY n.nspname, c.relname`,
  );
  const definitions = async (sql: string): Promise<string[]> =>
    (await sqlRows(db, definitionRow, sql)).map(({ definition }) => `${definition.trimEnd()};`);
  const indexes = await definitions(
    `SELECT pg_get_indexdef(i.indexrelid) AS definition
     FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE ${OWN_SCHEMAS} AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid)
     ORDER BY n.nspname, i.indrelid::regclass::text, c.relname`,
  );
  const functions = await definitions(
    `SELECT pg_get_functiondef(p.oid) AS definition FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
     WHERE ${OWN_SCHEMAS} AND p.prokind = 'f' ORDER BY n.nspname, p.proname`,
  );
  const triggers = await definitions(
    `SELECT pg_get_triggerdef(t.oid) AS definition
     FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE ${OWN_SCHEMAS} AND NOT t.tgisinternal ORDER BY n.nspname, c.relname, t.tgname`,
  );
  const tables = relations.map(({ name, kind, lines }) =>
    kind === 'v'
      ? `CREATE VIEW ${name} AS\n${lines.join('')}`
      : `CREATE TABLE ${name} (\n  ${lines.join(',\n  ')}\n);`,
  );
  return joined([...tables, ...indexes, ...functions, ...triggers]);
}

/** Every table of the current database. */
export async function dumpClickHouse(clickhouse: RowReader): Promise<string> {
  const found = await clickhouse.rows({
    name: 'test.schema',
    sql: `SELECT formatQuery(replaceOne(create_table_query, concat(' ', database, '.'), ' ')) AS definition
      FROM system.tables WHERE database = currentDatabase() ORDER BY name`,
    row: definitionRow,
  });
  return joined(found.map(({ definition }) => `${definition};`));
}

function joined(statements: readonly string[]): string {
  const header = '-- Written by `npm run schema:dump`. Do not edit.';
  return `${[header, ...statements].join('\n\n')}\n`;
}
