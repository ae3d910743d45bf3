import pg from 'pg';

import { AppError } from '../../schemas/errors.ts';
import { inTransaction } from './client.ts';
import type { Pool } from './client.ts';

/** Tables and views of working state that the API shows or needs; it sees no other of the schema `tds`. */
const WORKING_TABLES = [
  'served',
  'builds',
  'checkpoints',
  'projection_checkpoints',
  'projection_halts',
  'alarms',
  'role_processes',
  'chunk_writers',
  'observer_progress',
  'repairs_left',
  'webhook_deliveries',
  'webhook_endpoints',
];

const STATEMENT_TIMEOUT_MS = 15_000;

/**
 * Makes, or updates, the login role that the API is given: it may SELECT from read models, those of builds to come
 * included, and from a few tables of working state; nothing else. To be run after every `migrate`, by the owner of
 * the tables, who must be allowed to make roles.
 */
export async function grantApiRole(pool: Pool, apiDatabaseUrl: string): Promise<void> {
  const { username, password } = new URL(apiDatabaseUrl);
  const name = decodeURIComponent(username);
  if (name === '') throw new AppError('CONFIG_INVALID', 'API_DATABASE_URL names no role');
  const role = pg.escapeIdentifier(name);
  await inTransaction(pool, async (tx) => {
    await tx.query("SELECT pg_advisory_xact_lock(hashtext('tds.api-role'))");
    const { rows } = await tx.query<{ database: string; owner: string; exists: boolean }>(
      `SELECT current_database() AS database, current_user AS owner,
              EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1) AS exists`,
      [name],
    );
    const [{ database: databaseName, owner, exists } = { database: '', owner: '', exists: false }] = rows;
    if (owner === name) {
      throw new AppError('CONFIG_INVALID', 'API_DATABASE_URL must name another role than DATABASE_URL');
    }
    const database = pg.escapeIdentifier(databaseName);
    const passwordClause =
      password === '' ? '' : `PASSWORD ${pg.escapeLiteral(decodeURIComponent(password))}`;
    await tx.query(
      `${exists ? 'ALTER' : 'CREATE'} ROLE ${role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION
         NOBYPASSRLS ${passwordClause}`,
    );
    // Memberships, too, could bring rights.
    const memberships = await tx.query<{ granted: string }>(
      'SELECT g.rolname AS granted FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = $1::regrole',
      [role],
    );
    for (const { granted } of memberships.rows) {
      await tx.query(`REVOKE ${pg.escapeIdentifier(granted)} FROM ${role}`);
    }
    for (const setting of [
      'default_transaction_read_only = on',
      `statement_timeout = ${STATEMENT_TIMEOUT_MS}`,
      `idle_in_transaction_session_timeout = ${STATEMENT_TIMEOUT_MS}`,
    ]) {
      await tx.query(`ALTER ROLE ${role} IN DATABASE ${database} SET ${setting}`);
    }
    await tx.query(`REVOKE ALL ON DATABASE ${database} FROM ${role}`);
    // Every role has these through PUBLIC.
    await tx.query(`REVOKE TEMPORARY, CREATE ON DATABASE ${database} FROM PUBLIC`);
    await tx.query('REVOKE CREATE ON SCHEMA public FROM PUBLIC');
    await tx.query(`GRANT CONNECT ON DATABASE ${database} TO ${role}`);
    // Builds to come: their schemas and tables are made by this owner.
    await tx.query(`ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO ${role}`);
    await tx.query(`ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO ${role}`);
    const schemas = await tx.query<{ name: string }>(
      `SELECT nspname AS name FROM pg_namespace
       WHERE nspname NOT IN ('tds', 'public', 'information_schema') AND nspname !~ '^pg_'
         AND nspowner = current_user::regrole`,
    );
    for (const { name: schemaName } of schemas.rows) {
      const schema = pg.escapeIdentifier(schemaName);
      await tx.query(`GRANT USAGE ON SCHEMA ${schema} TO ${role}`);
      await tx.query(`GRANT SELECT ON ALL TABLES IN SCHEMA ${schema} TO ${role}`);
    }
    // What the default gave away of the working state is taken back.
    await tx.query('CREATE SCHEMA IF NOT EXISTS tds');
    await tx.query(`REVOKE ALL ON ALL TABLES IN SCHEMA tds FROM ${role}`);
    await tx.query(`GRANT USAGE ON SCHEMA tds TO ${role}`);
    const working = await tx.query<{ name: string }>(
      "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'tds' AND table_name = ANY ($1)",
      [WORKING_TABLES],
    );
    for (const { name: table } of working.rows) {
      await tx.query(`GRANT SELECT ON tds.${pg.escapeIdentifier(table)} TO ${role}`);
    }
  });
}
