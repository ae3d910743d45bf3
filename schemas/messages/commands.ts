import { z } from 'zod';

import { unixMillis } from './common.ts';

/**
 * Commands: what users and operators ask for. The projector decides each once, in log order, from the state and the
 * command alone: time is `issued_at`, integer ids are the offset, values from settings travel in the body.
 * Plain keys, passwords and tokens never enter the log, only their hashes.
 */
const envelope = {
  v: z.literal(1),
  /** Names the command; the same id twice is one command. */
  id: z.string().min(1).max(200),
  issued_at: unixMillis,
  /** Who asks: `user:<id>`, `operator`, `system`. */
  actor: z.string(),
};

/** An argon2id hash in PHC string format. */
const passwordHash = z.string().startsWith('$argon2id$');
/** Lowercase hex SHA-256. */
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

export const commandsMessage = z.discriminatedUnion('type', [
  z.object({
    ...envelope,
    type: z.literal('user.create'),
    body: z.object({
      username: z.string(),
      email: z.string().nullable(),
      password_hash: passwordHash,
      is_admin: z.boolean(),
    }),
  }),
  z.object({
    ...envelope,
    type: z.literal('session.open'),
    body: z.object({ user_id: z.int(), token_hash: sha256, expires_at: unixMillis }),
  }),
  z.object({ ...envelope, type: z.literal('session.close'), body: z.object({ token_hash: sha256 }) }),
  z.object({
    ...envelope,
    type: z.literal('api-key.create'),
    body: z.object({
      user_id: z.int(),
      name: z.string(),
      key_hash: sha256,
      /** The first characters of the key, to recognise it by. */
      prefix: z.string(),
      allowed_origins: z.array(z.string()),
      allowed_ips: z.array(z.string()),
      rate_limit_per_hour: z.int().positive().nullable(),
    }),
  }),
  z.object({
    ...envelope,
    type: z.literal('api-key.delete'),
    body: z.object({ user_id: z.int(), key_id: z.int() }),
  }),
]);
export type Command = z.infer<typeof commandsMessage>;
export type CommandType = Command['type'];
