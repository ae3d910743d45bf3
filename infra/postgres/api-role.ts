import pg from 'pg';

import { AppError } from '../../schemas/errors.ts';
import { errorCode } from '../error-code.ts';
import { retry } from '../retry.ts';
import { inTransaction } from './client.ts';
import type { Pool, Sql } from './client.ts';

/** The tables and views of the schema `tds` that the API may read. */
const WORKING_TABLES = [
  'migrations',
  'served',
  'builds',
  'checkpoints',
  'projection_checkpoints',
  'projection_halts',
  'alarms',
  'role_processes',
  'chunk_writers',
  'chunk_map',
  'rebuild_runs',
  'pending_repairs',
  'history',
  'verify_runs',
  'verify_samples',
  'commitment_checks',
  'conservation',
  'operations',
  'contract_standards',
  'observer_progress',
  'price_watch',
  'repairs_left',
  'webhook_deliveries',
  'webhook_endpoints',
];

const STATEMENT_TIMEOUT_MS = 15_000;
/** A process frozen here keeps others from granting; the server ends its transaction after this. */
const IDLE_MS = 60_000;

/**
 * Creates or updates the login role of the API. It may read the read models, those of future builds included, and a few tables
 * of working state, and call the function that writes its heartbeats. Run it after every `migrate`, as the owner of the tables
 * with CREATEROLE.
 */
export async function grantApiRole(pool: Pool, apiDatabaseUrl: string): Promise<void> {
  const { username, password } = new URL(apiDatabaseUrl);
  const name = decodeURIComponent(username);
  if (name === '') throw new AppError('CONFIG_INVALID', 'API_DATABASE_URL names no role');
  const role = pg.escapeIdentifier(name);
  const inTurn = async (tx: Sql): Promise<void> => {
    await tx.query("SELECT pg_advisory_xact_lock(hashtext('tds.api-role'))");
    await createRole(tx, name, password);
    await grantDatabase(tx, role);
    await grantReadModels(tx, role);
    await grantWorkingState(tx, role);
  };
  const grant = async (): Promise<void> => await inTransaction(pool, inTurn, { idleMs: IDLE_MS });
  // A role belongs to all databases of a server, the lock to one: elsewhere the role may be changed at the same time.
  await retry(grant, { isRetryable: isChangedMeanwhile, baseMs: 50, maxMs: 1000, maxAttempts: 10 });
}

/** PostgreSQL has no code of its own for "tuple concurrently updated", nor for a role that was created meanwhile. */
const isChangedMeanwhile = (error: unknown): boolean =>
  ['XX000', '23505', '42710'].includes(errorCode(error) ?? '');

/** Attributes that the role must not have, with the column of `pg_roles` that shows each. */
const REFUSED_ATTRIBUTES = {
  rolsuper: 'NOSUPERUSER',
  rolcreatedb: 'NOCREATEDB',
  rolcreaterole: 'NOCREATEROLE',
  rolinherit: 'NOINHERIT',
  rolreplication: 'NOREPLICATION',
  rolbypassrls: 'NOBYPASSRLS',
} as const;

async function createRole(tx: Sql, name: string, password: string): Promise<void> {
  const role = pg.escapeIdentifier(name);
  const { rows } = await tx.query<{
    owner: string;
    attributes: Record<string, boolean> | null;
    may: boolean;
  }>(
    `SELECT current_user AS owner, to_jsonb(r) AS attributes,
       r.rolname IS NULL OR pg_has_role(r.oid, 'MEMBER WITH ADMIN OPTION') AS may
     FROM (SELECT) AS one LEFT JOIN pg_roles r ON rolname = $1`,
    [name],
  );
  const [{ owner, attributes, may } = { owner: '', attributes: null, may: true }] = rows;
  if (owner === name) {
    throw new AppError('CONFIG_INVALID', 'API_DATABASE_URL must name another role than DATABASE_URL');
  }
  if (!may) {
    throw new AppError(
      'CONFIG_INVALID',
      `The role of DATABASE_URL may not change role ${name}: GRANT ${role} TO ${pg.escapeIdentifier(owner)} WITH ADMIN OPTION, or drop ${role}, so that it is created`,
    );
  }
  const passwordClause = password === '' ? '' : `PASSWORD ${pg.escapeLiteral(decodeURIComponent(password))}`;
  // Only a superuser may name some of these attributes, so any other owner names only those that it has to revoke.
  const refused = Object.entries(REFUSED_ATTRIBUTES)
    .filter(([column]) => attributes === null || attributes[column] === true)
    .map(([, clause]) => clause);
  await tx.query(
    `${attributes === null ? 'CREATE' : 'ALTER'} ROLE ${role} LOGIN ${refused.join(' ')} ${passwordClause}`,
  );
  // Memberships would also grant rights.
  const memberships = await tx.query<{ granted: string }>(
    'SELECT g.rolname AS granted FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = $1::regrole',
    [role],
  );
  for (const { granted } of memberships.rows) {
    await tx.query(`REVOKE ${pg.escapeIdentifier(granted)} FROM ${role}`);
  }
}

async function grantDatabase(tx: Sql, role: string): Promise<void> {
  const { rows } = await tx.query<{ name: string }>('SELECT current_database() AS name');
  const database = pg.escapeIdentifier(rows[0]?.name ?? '');
  for (const setting of [
    'default_transaction_read_only = on',
    `statement_timeout = ${STATEMENT_TIMEOUT_MS}`,
    `idle_in_transaction_session_timeout = ${STATEMENT_TIMEOUT_MS}`,
  ]) {
    await tx.query(`ALTER ROLE ${role} IN DATABASE ${database} SET ${setting}`);
  }
  await tx.query(`REVOKE ALL ON DATABASE ${database} FROM ${role}`);
  // Every role inherits these from PUBLIC.
  await tx.query(`REVOKE TEMPORARY, CREATE ON DATABASE ${database} FROM PUBLIC`);
  await tx.query('REVOKE CREATE ON SCHEMA public FROM PUBLIC');
  await tx.query(`GRANT CONNECT ON DATABASE ${database} TO ${role}`);
}

async function grantReadModels(tx: Sql, role: string): Promise<void> {
  // Future builds: this owner creates their schemas and tables.
  await tx.query(`ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO ${role}`);
  await tx.query(`ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO ${role}`);
  const schemas = await tx.query<{ name: string }>(
    `SELECT nspname AS name FROM pg_namespace
     WHERE nspname NOT IN ('tds', 'public', 'information_schema') AND nspname !~ '^pg_'
       AND nspowner = current_user::regrole`,
  );
  for (const { name } of schemas.rows) {
    const schema = pg.escapeIdentifier(name);
    await tx.query(`GRANT USAGE ON SCHEMA ${schema} TO ${role}`);
    await tx.query(`GRANT SELECT ON ALL TABLES IN SCHEMA ${schema} TO ${role}`);
  }
}

async function grantWorkingState(tx: Sql, role: string): Promise<void> {
  // The default privileges also cover working state; revoke them there.
  await tx.query('CREATE SCHEMA IF NOT EXISTS tds');
  await tx.query(`REVOKE ALL ON ALL TABLES IN SCHEMA tds FROM ${role}`);
  await tx.query(`GRANT USAGE ON SCHEMA tds TO ${role}`);
  const tables = await tx.query<{ name: string }>(
    "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'tds' AND table_name = ANY ($1)",
    [WORKING_TABLES],
  );
  for (const { name } of tables.rows) {
    await tx.query(`GRANT SELECT ON tds.${pg.escapeIdentifier(name)} TO ${role}`);
  }
  await tx.query(`GRANT EXECUTE ON FUNCTION tds.write_api_heartbeat TO ${role}`);
}
