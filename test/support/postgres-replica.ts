import { z } from 'zod';

import { inTransaction, sqlRows } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';

const tableRow = z.object({ name: z.string(), columns: z.string() });

/** Tables of the service with the columns that can be written, those without foreign keys first. */
const TABLES = `
  SELECT c.oid::regclass::text AS name, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS columns
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
  WHERE c.relkind = 'r' AND n.nspname NOT IN ('public', 'replica', 'information_schema') AND n.nspname !~ '^pg_'
  GROUP BY c.oid ORDER BY (SELECT count(*) FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'f'), 1`;

/**
 * Copies every table as an asynchronous replica would have it now. The result fails over to it: it ends all sessions and
 * sets the tables back, so that every later transaction is lost.
 */
export async function replicaOf(pool: Pool): Promise<{ promote(): Promise<void> }> {
  const tables = await sqlRows(pool, tableRow, TABLES);
  const copies = tables.map((table, index) => ({ ...table, copy: `replica.t${index}` }));
  await inTransaction(pool, async (tx) => {
    await tx.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ');
    await tx.query('DROP SCHEMA IF EXISTS replica CASCADE');
    await tx.query('CREATE SCHEMA replica');
    for (const { name, copy } of copies) await tx.query(`CREATE TABLE ${copy} AS TABLE ${name}`);
  });
  const restore = async (): Promise<void> =>
    await inTransaction(pool, async (tx) => {
      await tx.query(
        'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()',
      );
      await tx.query(`TRUNCATE ${tables.map(({ name }) => name).join(', ')}`);
      for (const { name, columns, copy } of copies)
        await tx.query(
          `INSERT INTO ${name} (${columns}) OVERRIDING SYSTEM VALUE SELECT ${columns} FROM ${copy}`,
        );
    });
  return {
    async promote() {
      // Sessions that come back at once may lock the tables in another order.
      for (let attempt = 1; ; attempt += 1) {
        try {
          return await restore();
        } catch (error) {
          if (attempt === 10) throw error;
        }
      }
    },
  };
}
