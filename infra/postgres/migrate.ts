import { readFileSync, readdirSync } from 'node:fs';

import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';
import { createPool, isLockTimeout, isTableMissing, inTransaction, sqlRows, unavailable } from './client.ts';
import type { Pool, PoolClient, Sql } from './client.ts';

const directory = new URL('./migrations/', import.meta.url);

/** Longest wait for another process that migrates, before it is reported. */
const TURN_MS = 1000;
/** A process frozen here keeps others from migrating, and batches from beginning; the server ends its transaction after this. */
const IDLE_MS = 60_000;
/** Longest wait for batches under way: new ones wait meanwhile. */
const BATCHES_MS = 30_000;
/** Longest wait for the lock of a table: whoever uses the table waits meanwhile. */
const TABLE_LOCK_MS = 3000;
const CHECK_TIMEOUT_MS = 5000;
/**
 * Lets the server notice, while a statement runs or waits for a lock, that its client has given it up or was killed; else each
 * new attempt would add a session. A value of the operator is kept. Left out on Windows, which has no such check, and for a
 * user who does not own the database.
 */
const CHECK_CLIENTS = `
  DO $$ BEGIN
    IF current_setting('client_connection_check_interval', true) = '0' THEN
      EXECUTE format('ALTER DATABASE %I SET client_connection_check_interval = 5000', current_database());
    END IF;
  EXCEPTION WHEN invalid_parameter_value OR insufficient_privilege THEN NULL;
  END $$`;

/**
 * Applies pending migrations in order, in one transaction. They create working state (leases, cursors, recorded blocks,
 * checkpoints); the tables of read models are created by builds. Processes that migrate at the same time wait for each
 * other.
 *
 * @returns the files applied
 * @throws STORE_UNAVAILABLE, retryable, when other processes keep locks for too long: nothing is applied
 */
export async function migrate(
  pool: Pool,
  { idleMs = IDLE_MS }: { readonly idleMs?: number } = {},
): Promise<string[]> {
  const files = migrationFiles();
  const apply = async (tx: PoolClient): Promise<string[]> => {
    await takeTurn(tx);
    await tx.query('CREATE SCHEMA IF NOT EXISTS tds');
    await tx.query(
      'CREATE TABLE IF NOT EXISTS tds.migrations (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())',
    );
    await tx.query(CHECK_CLIENTS);
    const applied = await appliedMigrations(tx);
    const unknown = [...applied].filter((name) => !files.includes(name));
    if (unknown.length > 0) {
      throw new AppError(
        'VERSION_MISMATCH',
        `This database was migrated by a newer version of the program (unknown migrations: ${unknown.join(', ')}): upgrade this program`,
      );
    }
    const pending = files.filter((name) => !applied.has(name));
    if (pending.length === 0) return pending;
    try {
      await waitForBatches(tx);
      await tx.query(`SET LOCAL lock_timeout = ${TABLE_LOCK_MS}`);
      for (const name of pending) {
        await tx.query(readFileSync(new URL(name, directory), 'utf8'));
        await tx.query('INSERT INTO tds.migrations (name) VALUES ($1)', [name]);
      }
    } catch (error) {
      if (!isLockTimeout(error)) throw error;
      throw unavailable('Running processes keep locks that a migration needs', error);
    }
    return pending;
  };
  return await inTransaction(pool, apply, { idleMs });
}

async function takeTurn(tx: PoolClient): Promise<void> {
  await tx.query(`SET LOCAL lock_timeout = ${TURN_MS}`);
  try {
    await tx.query("SELECT pg_advisory_xact_lock(hashtext('tds.migrate'))");
  } catch (error) {
    if (!isLockTimeout(error)) throw error;
    throw unavailable('Another process is migrating this database', error);
  }
  await tx.query('SET LOCAL lock_timeout TO DEFAULT');
}

/**
 * Checks that the migrations of this program are applied; a newer program may have applied more.
 *
 * @throws `VERSION_MISMATCH`, or a retryable error when PostgreSQL does not answer
 */
export async function checkMigrated(url: string): Promise<void> {
  const pool = createPool(url, { applicationName: 'tds-check', max: 1, queryTimeoutMs: CHECK_TIMEOUT_MS });
  try {
    const applied = await appliedMigrations(pool).catch((error: unknown) => {
      if (isTableMissing(error)) return new Set<string>();
      throw error;
    });
    const first = migrationFiles().find((name) => !applied.has(name));
    if (first === undefined) return;
    throw new AppError(
      'VERSION_MISMATCH',
      `This database lacks migrations of this release, from ${first} on: run its \`tds migrate\``,
    );
  } finally {
    await pool.end();
  }
}

function migrationFiles(): string[] {
  return readdirSync(directory)
    .filter((name) => /^\d{4}_[a-z0-9_-]+\.sql$/.test(name))
    .toSorted();
}

const migrationRow = z.object({ name: z.string() });

async function appliedMigrations(db: Sql): Promise<Set<string>> {
  const rows = await sqlRows(db, migrationRow, 'SELECT name FROM tds.migrations');
  return new Set(rows.map(({ name }) => name));
}

/**
 * Keeps batches out of a migration, by the locks that a swap of builds takes (`served-lock.ts`). A batch moves its checkpoints on
 * another connection than the one whose transaction has read `tds.builds`: PostgreSQL would not see that it waits for itself once an
 * ALTER TABLE is queued between the two.
 */
async function waitForBatches(tx: PoolClient): Promise<void> {
  const { rows } = await tx.query("SELECT WHERE to_regclass('tds.builds') IS NOT NULL");
  if (rows.length === 0) return;
  await tx.query(`SET LOCAL lock_timeout = ${BATCHES_MS}`);
  await tx.query(
    `SELECT pg_advisory_xact_lock(hashtext('tds.served'), hashtext(projection))
     FROM (SELECT DISTINCT projection COLLATE "C" AS projection FROM tds.builds ORDER BY 1) AS p`,
  );
}
