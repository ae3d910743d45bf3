import { z } from 'zod';

import { prepared, sqlRow, sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { keyRecord } from './api-keys.ts';
import type { KeyRecord } from './api-keys.ts';
import { loginKey } from './users.ts';

export { keyRecord } from './api-keys.ts';
export type { KeyRecord } from './api-keys.ts';
export { loginKey } from './users.ts';

/** Read side of the accounts. `schema` is the served build's: `served.schema('accounts')`. */

const userRow = z.object({
  id: z.number(),
  username: z.string(),
  email: z.string().nullable(),
  password_hash: z.string(),
  is_admin: z.boolean(),
  is_disabled: z.boolean(),
});
export type UserForLogin = z.infer<typeof userRow>;

/** The user whose username or e-mail address this is. */
export async function userByLogin(db: Sql, schema: string, login: string): Promise<UserForLogin | null> {
  return await sqlRow(
    db,
    userRow,
    `SELECT id, username, email, password_hash, is_admin, disabled_at IS NOT NULL AS is_disabled
     FROM ${schema}.users
     WHERE username_key = $1 OR email_key = $1`,
    [loginKey(login)],
  );
}

const sessionRow = z.object({
  expires_at: z.number(),
  user_id: z.number(),
  username: z.string(),
  email: z.string().nullable(),
  is_admin: z.boolean(),
});
export type SessionByToken = z.infer<typeof sessionRow>;

/** A session with its user; the caller compares `expires_at` with its own clock. */
export async function sessionByTokenHash(
  db: Sql,
  schema: string,
  tokenHash: string,
): Promise<SessionByToken | null> {
  return await sqlRow(
    db,
    sessionRow,
    prepared(
      `SELECT s.expires_at, s.user_id, u.username, u.email, u.is_admin
       FROM ${schema}.sessions s JOIN ${schema}.users u ON u.id = s.user_id WHERE s.token_hash = $1`,
      [tokenHash],
    ),
  );
}

const keyRow = z.object({
  id: z.number(),
  user_id: z.number(),
  allowed_origins: z.array(z.string()),
  allowed_ips: z.array(z.string()),
  rate_limit_per_hour: z.number().nullable(),
  expires_at: z.number().nullable(),
});
export type KeyByHash = z.infer<typeof keyRow>;

/** The caller compares `expires_at` with its own clock. Keys of disabled users are rejected. */
export async function keyByHash(db: Sql, schema: string, keyHash: string): Promise<KeyByHash | null> {
  return await sqlRow(
    db,
    keyRow,
    prepared(
      `SELECT k.id, k.user_id, k.allowed_origins, k.allowed_ips, k.rate_limit_per_hour, k.expires_at
       FROM ${schema}.api_keys k JOIN ${schema}.users u ON u.id = k.user_id
       WHERE k.key_hash = $1 AND u.disabled_at IS NULL`,
      [keyHash],
    ),
  );
}

/** Equal for keys that may be used from the same places. */
export function restrictionsOf({
  allowed_origins: origins,
  allowed_ips: networks,
}: Pick<KeyByHash, 'allowed_origins' | 'allowed_ips'>): string {
  return JSON.stringify([origins, networks]);
}

/** Which of these keys may be used at a time (Unix milliseconds), with `restrictionsOf` each. */
export async function usableKeys(
  db: Sql,
  schema: string,
  ids: readonly number[],
  now: number,
): Promise<Map<number, string>> {
  const rows = await sqlRows(
    db,
    keyRow.pick({ id: true, allowed_origins: true, allowed_ips: true }),
    `SELECT k.id, k.allowed_origins, k.allowed_ips FROM ${schema}.api_keys k JOIN ${schema}.users u ON u.id = k.user_id
     WHERE k.id = ANY($1) AND u.disabled_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2)`,
    [ids, now],
  );
  return new Map(rows.map((row) => [row.id, restrictionsOf(row)]));
}

/** Which of these sessions, by the hashes of their tokens, may be used at a time (Unix milliseconds). */
export async function usableSessions(
  db: Sql,
  schema: string,
  tokenHashes: readonly string[],
  now: number,
): Promise<Set<string>> {
  const rows = await sqlRows(
    db,
    z.object({ token_hash: z.string() }),
    `SELECT token_hash FROM ${schema}.sessions WHERE token_hash = ANY($1) AND expires_at > $2`,
    [tokenHashes, now],
  );
  return new Set(rows.map(({ token_hash }) => token_hash));
}

const KEY_COLUMNS =
  'id, name, prefix, allowed_origins, allowed_ips, rate_limit_per_hour, created_at, expires_at';

const listedKey = keyRecord.pick({ id: true, name: true, created_at: true });

/** Oldest first. */
export async function keysOfUser(
  db: Sql,
  schema: string,
  userId: number,
): Promise<z.infer<typeof listedKey>[]> {
  return await sqlRows(
    db,
    listedKey,
    `SELECT id, name, created_at FROM ${schema}.api_keys WHERE user_id = $1 ORDER BY id`,
    [userId],
  );
}

export async function keyOfUser(
  db: Sql,
  schema: string,
  userId: number,
  id: number,
): Promise<KeyRecord | null> {
  const sql = `SELECT ${KEY_COLUMNS} FROM ${schema}.api_keys WHERE user_id = $1 AND id = $2`;
  const [key = null] = await sqlRows(db, keyRecord, sql, [userId, id]);
  return key;
}
