import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { PoolClient } from '../../infra/postgres/client.ts';
import type { Command } from '../../schemas/messages/commands.ts';
import { topics } from '../../schemas/topics.ts';
import { tableSql } from '../define.ts';
import type { PostgresProjection } from '../define.ts';
import { decideApiKey } from './api-keys.ts';
import type { ApiKeyChange } from './api-keys.ts';
import type { Decision, Outcome } from './decision.ts';
import { DECIDED_CHANNEL } from './queries.ts';
import { decideSession } from './sessions.ts';
import type { SessionChange } from './sessions.ts';
import { decideUser, loginKey } from './users.ts';
import type { UserChange } from './users.ts';

type Change = UserChange | SessionChange | ApiKeyChange;

/** How long an outcome can be asked for, in milliseconds of the log's time. */
const OUTCOME_LIFETIME_MS = 48 * 3_600_000;

/** Users, sessions, API keys and the outcomes of commands: decides every command once, in log order. */
export const accounts: PostgresProjection<Command> = {
  kind: 'postgres',
  name: 'accounts',
  version: 1,
  topic: topics.commands,
  ddl: tableSql(import.meta.url),
  notify: { channel: DECIDED_CHANNEL, payload: ({ id }) => id },
  async fold(tx, command, { offset, schema }) {
    await tx.query(`DELETE FROM ${schema}.command_outcomes WHERE issued_at <= $1`, [
      command.issued_at - OUTCOME_LIFETIME_MS,
    ]);
    const known = await tx.query(`SELECT 1 FROM ${schema}.command_outcomes WHERE id = $1`, [command.id]);
    if (known.rowCount !== 0) return;
    const { outcome, changes } = await decide(tx, schema, command, offset + 1);
    for (const change of changes) await apply(tx, schema, change);
    await keepOutcome(tx, schema, command, outcome);
  },
};

/** Reads the state that a command is about, and lets its aggregate decide. */
async function decide(
  tx: PoolClient,
  schema: string,
  command: Command,
  newId: number,
): Promise<Decision<Change>> {
  const exists = async (table: string, column: string, value: string | number): Promise<boolean> => {
    const { rowCount } = await tx.query(`SELECT 1 FROM ${schema}.${table} WHERE ${column} = $1`, [value]);
    return rowCount !== 0;
  };
  switch (command.type) {
    case 'user.create': {
      const logins = [command.body.username, command.body.email].filter((login) => login !== null);
      const takenLogins = await loginsTaken(tx, schema, logins.map(loginKey));
      return decideUser({ takenLogins, userExists: false }, command, newId);
    }
    case 'user.set-password': {
      const userExists = await exists('users', 'id', command.body.user_id);
      return decideUser({ takenLogins: new Set(), userExists }, command, newId);
    }
    case 'session.open': {
      const userExists = await exists('users', 'id', command.body.user_id);
      const sessionExists = await exists('sessions', 'token_hash', command.body.token_hash);
      return decideSession({ userExists, sessionExists }, command);
    }
    case 'session.close': {
      const sessionExists = await exists('sessions', 'token_hash', command.body.token_hash);
      return decideSession({ userExists: false, sessionExists }, command);
    }
    case 'api-key.create': {
      const userExists = await exists('users', 'id', command.body.user_id);
      const hashExists = await exists('api_keys', 'key_hash', command.body.key_hash);
      return decideApiKey({ userExists, hashExists, keyOwner: null }, command, newId);
    }
    case 'api-key.delete': {
      const [key] = await sqlRows(
        tx,
        z.object({ user_id: z.number() }),
        `SELECT user_id FROM ${schema}.api_keys WHERE id = $1`,
        [command.body.key_id],
      );
      const keyOwner = key?.user_id ?? null;
      return decideApiKey({ userExists: false, hashExists: false, keyOwner }, command, newId);
    }
  }
}

async function loginsTaken(
  tx: PoolClient,
  schema: string,
  keys: readonly string[],
): Promise<ReadonlySet<string>> {
  const taken = await sqlRows(
    tx,
    z.object({ login: z.string() }),
    `SELECT login FROM unnest($1::text[]) AS login
     WHERE EXISTS (SELECT 1 FROM ${schema}.users WHERE username_key = login OR email_key = login)`,
    [keys],
  );
  return new Set(taken.map(({ login }) => login));
}

async function apply(tx: PoolClient, schema: string, change: Change): Promise<void> {
  switch (change.type) {
    case 'user.added':
      await insert(tx, `${schema}.users`, change.user);
      return;
    case 'user.password-set':
      await tx.query(`UPDATE ${schema}.users SET password_hash = $2 WHERE id = $1`, [
        change.id,
        change.passwordHash,
      ]);
      await tx.query(`DELETE FROM ${schema}.sessions WHERE user_id = $1`, [change.id]);
      return;
    case 'session.opened':
      await insert(tx, `${schema}.sessions`, change.session);
      return;
    case 'session.closed':
      await tx.query(`DELETE FROM ${schema}.sessions WHERE token_hash = $1`, [change.tokenHash]);
      return;
    case 'sessions.expired':
      await tx.query(`DELETE FROM ${schema}.sessions WHERE expires_at <= $1`, [change.atOrBefore]);
      return;
    case 'api-key.added':
      await insert(tx, `${schema}.api_keys`, change.key);
      return;
    case 'api-key.removed':
      await tx.query(`DELETE FROM ${schema}.api_keys WHERE id = $1`, [change.id]);
      return;
  }
}

/** Columns are the row's own keys, which the row types name. */
async function insert(tx: PoolClient, table: string, row: object): Promise<void> {
  const columns = Object.keys(row);
  const places = columns.map((_, index) => `$${index + 1}`);
  await tx.query(
    `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${places.join(', ')})`,
    Object.values(row),
  );
}

async function keepOutcome(
  tx: PoolClient,
  schema: string,
  command: Command,
  { accepted, result }: Outcome,
): Promise<void> {
  await insert(tx, `${schema}.command_outcomes`, {
    id: command.id,
    type: command.type,
    issued_at: command.issued_at,
    request_hash: command.request_hash,
    accepted,
    result: JSON.stringify(result),
  });
}
