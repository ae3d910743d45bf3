import { argon2, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';

/** argon2id as OWASP recommends it: 19 MiB, two passes, one lane. */
const RECOMMENDED = { memory: 19_456, passes: 2, parallelism: 1 };
const SALT_BYTES = 16;
const HASH_BYTES = 32;
const PHC = /^\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/;

const derive = promisify(argon2);

/** Argon2id of a password with a random salt, in PHC string format. */
export async function hashPassword(password: string): Promise<string> {
  const nonce = randomBytes(SALT_BYTES);
  const { memory, passes, parallelism } = RECOMMENDED;
  const tag = await derive('argon2id', {
    message: Buffer.from(password),
    nonce,
    memory,
    passes,
    parallelism,
    tagLength: HASH_BYTES,
  });
  return `$argon2id$v=19$m=${memory},t=${passes},p=${parallelism}$${unpadded(nonce)}$${unpadded(tag)}`;
}

/** Verifies with the parameters that the hash names; false for a text that is no argon2id hash. */
export async function verifyPassword(passwordHash: string, password: string): Promise<boolean> {
  const [, memory, passes, parallelism, salt, hash] = PHC.exec(passwordHash) ?? [];
  if (salt === undefined || hash === undefined) return false;
  const expected = Buffer.from(hash, 'base64');
  const tag = await derive('argon2id', {
    message: Buffer.from(password),
    nonce: Buffer.from(salt, 'base64'),
    memory: Number(memory),
    passes: Number(passes),
    parallelism: Number(parallelism),
    tagLength: expected.length,
  });
  return timingSafeEqual(tag, expected);
}

function unpadded(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64').replace(/=+$/, '');
}
