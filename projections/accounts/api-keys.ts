import { z } from 'zod';

import type { CommandOf } from '../../schemas/messages/commands.ts';
import { accept, refuse } from '../commands.ts';
import type { Decision } from '../commands.ts';

/** What an owner sees of a key; times are unix milliseconds. */
export const keyRecord = z.object({
  id: z.int(),
  name: z.string(),
  prefix: z.string(),
  allowed_origins: z.array(z.string()),
  allowed_ips: z.array(z.string()),
  rate_limit_per_hour: z.int().nullable(),
  created_at: z.int(),
  expires_at: z.int().nullable(),
});
export type KeyRecord = z.infer<typeof keyRecord>;

/** A row of `api_keys`. */
export const apiKeyRow = keyRecord.extend({ user_id: z.int(), key_hash: z.string() });
type ApiKeyRow = z.infer<typeof apiKeyRow>;

export type ApiKeyChange =
  | { readonly type: 'api-key.added' | 'api-key.changed'; readonly key: ApiKeyRow }
  | { readonly type: 'api-key.removed'; readonly id: number };

export interface ApiKeysState {
  readonly userExists: boolean;
  /** A key with the command's hash exists, of any owner. */
  readonly hashExists: boolean;
  /** The key that the command names, of any owner; null: none exists. */
  readonly key: ApiKeyRow | null;
}

export function decideApiKey(
  state: ApiKeysState,
  command: CommandOf<'api-key.create' | 'api-key.update' | 'api-key.delete'>,
  newId: number,
): Decision<ApiKeyChange> {
  if (command.type === 'api-key.create') {
    if (!state.userExists) return refuse('NOT_FOUND', 'No such user.');
    // Earlier versions derived a key from its Idempotency-Key alone, and it outlives the 48 h for which its outcome is stored.
    if (state.hashExists) return refuse('CONFLICT', 'This key already exists. Use another Idempotency-Key.');
    const { expires_at: expiresAt = null, ...body } = command.body;
    const key = { id: newId, ...body, created_at: command.issued_at, expires_at: expiresAt };
    return accept(recordOf(key), { type: 'api-key.added', key });
  }
  const { user_id: userId, key_id: id, ...changed } = command.body;
  // Another user's key is refused like one that does not exist.
  if (state.key === null || state.key.user_id !== userId) return refuse('NOT_FOUND', 'Not found.');
  if (command.type === 'api-key.delete') return accept({ id }, { type: 'api-key.removed', id });
  const key = { ...state.key, ...changed };
  return accept(recordOf(key), { type: 'api-key.changed', key });
}

function recordOf({ user_id: _user, key_hash: _hash, ...shown }: ApiKeyRow): KeyRecord {
  return shown;
}
