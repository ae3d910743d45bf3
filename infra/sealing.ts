import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from 'node:crypto';

import { AppError } from '../schemas/errors.ts';

/**
 * Encrypts secrets that must be readable later (sync keys, webhook secrets) before they enter the log and the tables:
 * AES-256-GCM with a key derived from `SECRET_KEY`, authenticated together with their owner.
 *
 * `v1.<id of the key>.<base64url of nonce, ciphertext, tag>`
 */
export interface Sealing {
  /** @param of the owner of the secret, such as `sync auth_key of <lookup hash>` */
  seal(secret: string, of: string): string;
  /** Throws `SECRET_UNREADABLE` if it was sealed with an unknown key, or for another owner. */
  open(sealed: string, of: string): string;
  /** True if it was sealed with the current key. */
  isCurrent(sealed: string): boolean;
  /** True if it can open what was sealed with the key of this id. */
  hasKey(id: string): boolean;
}

const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** @param previous keys that are accepted for decryption only */
export function createSealing(secretKey: Buffer, previous: readonly Buffer[] = []): Sealing {
  const keys = new Map(
    [secretKey, ...previous].map((secret) => {
      const key = Buffer.from(hkdfSync('sha256', secret, '', 'tds sealing v1', 32));
      return [createHash('sha256').update(key).digest('hex').slice(0, 8), key] as const;
    }),
  );
  const [[currentId, currentKey] = ['', Buffer.alloc(0)]] = keys;
  return {
    seal(secret, of) {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv('aes-256-gcm', currentKey, nonce).setAAD(Buffer.from(of));
      const parts = [nonce, cipher.update(secret, 'utf8'), cipher.final(), cipher.getAuthTag()];
      return `v1.${currentId}.${Buffer.concat(parts).toString('base64url')}`;
    },
    open(sealed, of) {
      const [version, id = '', text = ''] = sealed.split('.');
      const key = keys.get(id);
      if (version !== 'v1' || key === undefined) {
        throw new AppError(
          'SECRET_UNREADABLE',
          `The ${of.split(' of ')[0] ?? 'secret'} was sealed with another SECRET_KEY (${id}): add that key to SECRET_KEYS_PREVIOUS`,
        );
      }
      try {
        const bytes = Buffer.from(text, 'base64url');
        const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, NONCE_BYTES), {
          authTagLength: TAG_BYTES,
        });
        decipher.setAAD(Buffer.from(of)).setAuthTag(bytes.subarray(-TAG_BYTES));
        const secret = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
        return Buffer.concat([secret, decipher.final()]).toString('utf8');
      } catch (cause) {
        throw new AppError('SECRET_UNREADABLE', 'A sealed secret was modified, or has another owner', {
          cause,
        });
      }
    },
    isCurrent: (sealed) => sealed.startsWith(`v1.${currentId}.`),
    hasKey: (id) => keys.has(id),
  };
}
