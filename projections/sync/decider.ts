import type { CommandOf } from '../../schemas/messages/commands.ts';
import { accept, refuse } from '../commands.ts';
import type { Decision } from '../commands.ts';

/** The blob stored under a lookup hash; null: none. */
export interface StoredBlob {
  readonly version: number;
  /** The command that brought the key. */
  readonly key_command: string;
}

export interface BlobStored {
  readonly type: 'blob.stored';
  readonly lookupHash: string;
  readonly version: number;
  readonly blob: string;
  readonly lastModified: number;
  /** The key of the first PUT, or the same key sealed again; null: unchanged. */
  readonly key: { readonly sealed: string; readonly command: string } | null;
}

/**
 * The higher version wins; of two concurrent first PUTs, the one that comes first in the log. The API has checked the
 * signature, with the key that the command names.
 */
export function decideSync(stored: StoredBlob | null, command: CommandOf<'sync.put'>): Decision<BlobStored> {
  const {
    lookup_hash: lookupHash,
    version,
    blob,
    verified_with: verifiedWith,
    auth_key: sealed,
  } = command.body;
  if ((stored?.key_command ?? null) !== verifiedWith || (stored === null && sealed === null)) {
    return refuse('CONFLICT', 'The signature was verified with another public key.');
  }
  if (stored !== null && version <= stored.version) {
    return refuse('CONFLICT', 'Version conflict', { server_version: stored.version });
  }
  const key = sealed === null ? null : { sealed, command: stored?.key_command ?? command.id };
  const change = {
    type: 'blob.stored' as const,
    lookupHash,
    version,
    blob,
    lastModified: command.issued_at,
    key,
  };
  return accept({ version }, change);
}
