import { z } from 'zod';

import { prepared, sqlRows } from '../../infra/postgres/client.ts';
import type { PoolClient } from '../../infra/postgres/client.ts';
import type { CommandOf } from '../../schemas/messages/commands.ts';
import { commandProjection, insertRow } from '../commands.ts';
import type { Decision } from '../commands.ts';
import { tableSql } from '../define.ts';
import { apiKeyRow, decideApiKey } from './api-keys.ts';
import type { ApiKeyChange } from './api-keys.ts';
import { decideOperation } from './operations.ts';
import type { OperationCommand } from './operations.ts';
import { decideSession } from './sessions.ts';
import type { SessionChange } from './sessions.ts';
import { decideUser, loginKey } from './users.ts';
import type { UserChange } from './users.ts';

type AccountCommand = CommandOf<
  | 'user.create'
  | 'user.set-password'
  | 'user.disable'
  | 'session.open'
  | 'session.close'
  | 'api-key.create'
  | 'api-key.update'
  | 'api-key.delete'
  | OperationCommand['type']
>;
type Change = UserChange | SessionChange | ApiKeyChange;

/** Users, sessions and API keys, with the outcomes of their commands. Decides every command once, in log order. */
export const accounts = commandProjection({
  name: 'accounts',
  version: 2,
  ddl: tableSql(import.meta.url),
  expired: (schema) => `DELETE FROM ${schema}.sessions WHERE expires_at <= $2`,
  async decide(tx, schema, command, newId) {
    const { outcome, changes } = await decide(tx, schema, command, newId);
    for (const change of changes) await apply(tx, schema, change);
    return outcome;
  },
});

/** A row whose existence is checked: `where` is an SQL expression that is compared with the value. */
interface SoughtRow {
  readonly table: string;
  readonly where: string;
  readonly value: string | number;
}

const foundRow = z.object({ found: z.array(z.boolean()) });

/** Reads the state that the command's aggregate needs, and returns its decision. */
async function decide(
  tx: PoolClient,
  schema: string,
  command: AccountCommand,
  newId: number,
): Promise<Decision<Change>> {
  const exist = async (...rows: readonly SoughtRow[]): Promise<boolean[]> => {
    const conditions = rows.map(
      ({ table, where }, index) => `EXISTS (SELECT 1 FROM ${schema}.${table} WHERE ${where} = $${index + 1})`,
    );
    const sql = `SELECT ARRAY[${conditions.join(', ')}] AS found`;
    const values = rows.map(({ value }) => value);
    const [row] = await sqlRows(tx, foundRow, prepared(sql, values));
    return row?.found ?? [];
  };
  const activeUser = (id: number): SoughtRow => ({
    table: 'users',
    where: 'disabled_at IS NULL AND id',
    value: id,
  });
  const passwordHash = (userId: number, hash: string): SoughtRow => ({
    table: 'users',
    where: `id = ${userId} AND password_hash`,
    value: hash,
  });
  const session = (value: string): SoughtRow => ({ table: 'sessions', where: 'token_hash', value });
  switch (command.type) {
    case 'user.create': {
      const logins = [command.body.username, command.body.email].filter((login) => login !== null);
      const takenLogins = await loginsTaken(tx, schema, logins.map(loginKey));
      return decideUser({ takenLogins, userExists: false }, command, newId);
    }
    case 'user.set-password':
    case 'user.disable': {
      const [userExists = false] = await exist({ table: 'users', where: 'id', value: command.body.user_id });
      return decideUser({ takenLogins: new Set(), userExists }, command, newId);
    }
    case 'session.open': {
      const { user_id, token_hash, password_hash } = command.body;
      const [userExists = false, sessionExists = false, isPasswordCurrent = true] = await exist(
        activeUser(user_id),
        session(token_hash),
        ...(password_hash === undefined ? [] : [passwordHash(user_id, password_hash)]),
      );
      return decideSession({ userExists, sessionExists, isPasswordCurrent }, command);
    }
    case 'session.close': {
      const [sessionExists = false] = await exist(session(command.body.token_hash));
      return decideSession({ userExists: false, sessionExists, isPasswordCurrent: false }, command);
    }
    case 'api-key.create': {
      const { user_id, key_hash } = command.body;
      const key = { table: 'api_keys', where: 'key_hash', value: key_hash };
      const [userExists = false, hashExists = false] = await exist(activeUser(user_id), key);
      return decideApiKey({ userExists, hashExists, key: null }, command, newId);
    }
    case 'api-key.update':
    case 'api-key.delete': {
      const sql = `SELECT * FROM ${schema}.api_keys WHERE id = $1`;
      const [key = null] = await sqlRows(tx, apiKeyRow, sql, [command.body.key_id]);
      return decideApiKey({ userExists: false, hashExists: false, key }, command, newId);
    }
    case 'quarantine.retry':
    case 'quarantine.skip':
    case 'rebuild.start':
    case 'rebuild.abort':
    case 'verify.start': {
      const where = 'is_admin AND disabled_at IS NULL AND id';
      const [isAdmin = false] = await exist({ table: 'users', where, value: command.body.user_id });
      return decideOperation({ isAdmin }, command);
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
      await insertRow(tx, `${schema}.users`, change.user);
      return;
    case 'user.password-set':
      await tx.query(`UPDATE ${schema}.users SET password_hash = $2 WHERE id = $1`, [
        change.id,
        change.passwordHash,
      ]);
      await tx.query(`DELETE FROM ${schema}.sessions WHERE user_id = $1`, [change.id]);
      return;
    case 'user.disabled':
      await tx.query(`UPDATE ${schema}.users SET disabled_at = $2 WHERE id = $1`, [change.id, change.at]);
      await tx.query(`DELETE FROM ${schema}.sessions WHERE user_id = $1`, [change.id]);
      return;
    case 'session.opened':
      await insertRow(tx, `${schema}.sessions`, change.session);
      return;
    case 'session.closed':
      await tx.query(`DELETE FROM ${schema}.sessions WHERE token_hash = $1`, [change.tokenHash]);
      return;
    case 'api-key.added':
      await insertRow(tx, `${schema}.api_keys`, change.key);
      return;
    case 'api-key.changed': {
      const { id, name, allowed_origins, allowed_ips, rate_limit_per_hour, expires_at } = change.key;
      await tx.query(
        `UPDATE ${schema}.api_keys
         SET name = $2, allowed_origins = $3, allowed_ips = $4, rate_limit_per_hour = $5, expires_at = $6 WHERE id = $1`,
        [id, name, allowed_origins, allowed_ips, rate_limit_per_hour, expires_at],
      );
      return;
    }
    case 'api-key.removed':
      await tx.query(`DELETE FROM ${schema}.api_keys WHERE id = $1`, [change.id]);
      return;
  }
}
