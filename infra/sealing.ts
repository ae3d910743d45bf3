import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from 'node:crypto';

import { AppError } from '../schemas/errors.ts';

/**
 * What must be read back (sync keys, webhook secrets) enters the log and the tables sealed: AES-256-GCM under a key made
 * of `SECRET_KEY`, bound to what it is a secret of, so that it opens nowhere else.
 *
 * `v1.<id of the key>.<base64url of nonce, ciphertext, tag>`
 */
export interface Sealing {
  /** @param of what the secret belongs to, such as `sync auth_key of <lookup hash>` */
  seal(secret: string, of: string): string;
  /** Throws `SECRET_UNREADABLE` where no key that is known, or not this owner, sealed it. */
  open(sealed: string, of: string): string;
  /** Whether it was sealed under the key of now. */
  isCurrent(sealed: string): boolean;
}

const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** @param before keys of earlier times, with which nothing is sealed any more */
export function createSealing(secretKey: Buffer, before: readonly Buffer[] = []): Sealing {
  const keys = new Map(
    [secretKey, ...before].map((secret) => {
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
          `The ${of.split(' of ')[0] ?? 'secret'} was sealed under another SECRET_KEY (${id}): name it in SECRET_KEYS_PREVIOUS`,
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
        throw new AppError('SECRET_UNREADABLE', 'A sealed secret was changed, or belongs to something else', {
          cause,
        });
      }
    },
    isCurrent: (sealed) => sealed.startsWith(`v1.${currentId}.`),
  };
}
