import { readFileSync, readdirSync } from 'node:fs';

import { AppError } from '../../schemas/errors.ts';
import { inTransaction } from './client.ts';
import type { Pool } from './client.ts';

const directory = new URL('./migrations/', import.meta.url);

/**
 * Applies pending migrations in order, in one transaction. They create working state (leases, cursors, recorded blocks,
 * checkpoints); the tables of read models are created by builds. Processes that migrate at the same time wait for each
 * other.
 *
 * @returns the files applied
 */
export async function migrate(pool: Pool): Promise<string[]> {
  const files = readdirSync(directory)
    .filter((name) => /^\d{4}_[a-z0-9_-]+\.sql$/.test(name))
    .toSorted();
  return await inTransaction(pool, async (tx) => {
    await tx.query("SELECT pg_advisory_xact_lock(hashtext('tds.migrate'))");
    await tx.query('CREATE SCHEMA IF NOT EXISTS tds');
    await tx.query(
      'CREATE TABLE IF NOT EXISTS tds.migrations (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())',
    );
    const { rows } = await tx.query<{ name: string }>('SELECT name FROM tds.migrations');
    const applied = new Set(rows.map(({ name }) => name));
    const unknown = [...applied].filter((name) => !files.includes(name));
    if (unknown.length > 0) {
      throw new AppError(
        'VERSION_MISMATCH',
        `This database was migrated by a newer version of the program (unknown migrations: ${unknown.join(', ')}): upgrade`,
      );
    }
    const pending = files.filter((name) => !applied.has(name));
    for (const name of pending) {
      await tx.query(readFileSync(new URL(name, directory), 'utf8'));
      await tx.query('INSERT INTO tds.migrations (name) VALUES ($1)', [name]);
    }
    return pending;
  });
}
