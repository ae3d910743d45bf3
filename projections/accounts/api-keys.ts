import type { CommandOf } from '../../schemas/messages/commands.ts';
import { accept, refuse } from '../commands.ts';
import type { Decision } from '../commands.ts';

interface ApiKeyRow {
  readonly id: number;
  readonly user_id: number;
  readonly name: string;
  readonly key_hash: string;
  readonly prefix: string;
  readonly allowed_origins: readonly string[];
  readonly allowed_ips: readonly string[];
  readonly rate_limit_per_hour: number | null;
  readonly created_at: number;
  readonly expires_at: number | null;
}

export type ApiKeyChange =
  | { readonly type: 'api-key.added'; readonly key: ApiKeyRow }
  | { readonly type: 'api-key.removed'; readonly id: number };

export interface ApiKeysState {
  readonly userExists: boolean;
  /** A key with the command's hash exists, of any owner. */
  readonly hashExists: boolean;
  /** Owner of the key with the command's id; null when there is none. */
  readonly keyOwner: number | null;
}

export function decideApiKey(
  state: ApiKeysState,
  command: CommandOf<'api-key.create' | 'api-key.delete'>,
  newId: number,
): Decision<ApiKeyChange> {
  switch (command.type) {
    case 'api-key.create': {
      if (!state.userExists) return refuse('NOT_FOUND', 'No such user.');
      // A key made with an Idempotency-Key is derived from it, and outlives the 48 h for which its outcome is stored.
      if (state.hashExists)
        return refuse('CONFLICT', 'This key already exists. Use another Idempotency-Key.');
      const { expires_at: expiresAt = null, ...body } = command.body;
      const key = { id: newId, ...body, created_at: command.issued_at, expires_at: expiresAt };
      const { user_id: _user, key_hash: _hash, ...shown } = key;
      return accept(shown, { type: 'api-key.added', key });
    }
    case 'api-key.delete': {
      const { user_id, key_id: id } = command.body;
      // Another user's key is refused like one that does not exist.
      if (state.keyOwner !== user_id) return refuse('NOT_FOUND', 'Not found.');
      return accept({ id }, { type: 'api-key.removed', id });
    }
  }
}
