import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { loginKey } from './users.ts';

export { loginKey } from './users.ts';

/** Read side of the accounts. `schema` is the served build's: `served.schema('accounts')`. */

const userRow = z.object({
  id: z.number(),
  username: z.string(),
  email: z.string().nullable(),
  password_hash: z.string(),
  is_admin: z.boolean(),
});
export type UserForLogin = z.infer<typeof userRow>;

/** The user whose username or e-mail address this is. */
export async function userByLogin(db: Sql, schema: string, login: string): Promise<UserForLogin | null> {
  const [user] = await sqlRows(
    db,
    userRow,
    `SELECT id, username, email, password_hash, is_admin FROM ${schema}.users
     WHERE username_key = $1 OR email_key = $1`,
    [loginKey(login)],
  );
  return user ?? null;
}

const sessionRow = z.object({
  expires_at: z.number(),
  user_id: z.number(),
  username: z.string(),
  email: z.string().nullable(),
});
export type SessionByToken = z.infer<typeof sessionRow>;

/** A session with its user; the caller compares `expires_at` with its own clock. */
export async function sessionByTokenHash(
  db: Sql,
  schema: string,
  tokenHash: string,
): Promise<SessionByToken | null> {
  const [session] = await sqlRows(
    db,
    sessionRow,
    `SELECT s.expires_at, s.user_id, u.username, u.email
     FROM ${schema}.sessions s JOIN ${schema}.users u ON u.id = s.user_id WHERE s.token_hash = $1`,
    [tokenHash],
  );
  return session ?? null;
}

const keyRow = z.object({
  id: z.number(),
  user_id: z.number(),
  allowed_origins: z.array(z.string()),
  allowed_ips: z.array(z.string()),
  rate_limit_per_hour: z.number().nullable(),
});
export type KeyByHash = z.infer<typeof keyRow>;

export async function keyByHash(db: Sql, schema: string, keyHash: string): Promise<KeyByHash | null> {
  const [key] = await sqlRows(
    db,
    keyRow,
    `SELECT id, user_id, allowed_origins, allowed_ips, rate_limit_per_hour
     FROM ${schema}.api_keys WHERE key_hash = $1`,
    [keyHash],
  );
  return key ?? null;
}

const listedKeyRow = z.object({ id: z.number(), name: z.string(), created_at: z.number() });
export type ListedKey = z.infer<typeof listedKeyRow>;

/** Oldest first. */
export async function keysOfUser(db: Sql, schema: string, userId: number): Promise<ListedKey[]> {
  return await sqlRows(
    db,
    listedKeyRow,
    `SELECT id, name, created_at FROM ${schema}.api_keys WHERE user_id = $1 ORDER BY id`,
    [userId],
  );
}

const refusal = z.object({ code: z.enum(['NOT_FOUND', 'CONFLICT']), detail: z.string() });
const outcomeRow = z.discriminatedUnion('accepted', [
  z.object({
    accepted: z.literal(true),
    request_hash: z.string().nullable(),
    result: z.record(z.string(), z.unknown()),
  }),
  z.object({ accepted: z.literal(false), request_hash: z.string().nullable(), result: refusal }),
]);
export type CommandOutcome = z.infer<typeof outcomeRow>;

/** What became of a command; null while it is not decided, and 48 h later. */
export async function outcomeById(db: Sql, schema: string, id: string): Promise<CommandOutcome | null> {
  const [outcome] = await sqlRows(
    db,
    outcomeRow,
    `SELECT accepted, request_hash, result FROM ${schema}.command_outcomes WHERE id = $1`,
    [id],
  );
  return outcome ?? null;
}

/** `pg_notify` channel on which the ids of decided commands are told, after the commit. */
export const DECIDED_CHANNEL = 'tds_commands_decided';
