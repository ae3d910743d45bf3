import { createHash, createHmac, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const MARK = 'tds_';
/** base62 digits of 32 bytes, and of a CRC-32. */
const SECRET_DIGITS = 43;
const CHECKSUM_DIGITS = 6;
/** Characters by which a user recognises a key; 8 of the 43 digits stay far from what can be guessed. */
const PREFIX_CHARACTERS = MARK.length + 8;

function base62(value: bigint, digits: number): string {
  let text = '';
  for (let rest = value; text.length < digits; rest /= 62n) text = ALPHABET.charAt(Number(rest % 62n)) + text;
  return text;
}

/** `tds_`, 32 bytes in base62, and the CRC-32 of what goes before as six base62 digits. */
export function formatApiKey(bytes: Buffer): string {
  const body = MARK + base62(BigInt(`0x${bytes.toString('hex')}`), SECRET_DIGITS);
  return body + base62(BigInt(crc32(body)), CHECKSUM_DIGITS);
}

export function randomApiKey(): string {
  return formatApiKey(randomBytes(32));
}

/** The key that follows from a command id, so that a retry with the same Idempotency-Key shows it again. */
export function derivedApiKey(secretKey: Buffer, commandId: string): string {
  return formatApiKey(createHmac('sha256', secretKey).update(`api-key:${commandId}`).digest());
}

/** False for what cannot be a key: a mistyped key is refused without a look-up. */
export function isWellFormedApiKey(text: string): boolean {
  const length = MARK.length + SECRET_DIGITS + CHECKSUM_DIGITS;
  if (text.length !== length || !/^tds_[0-9A-Za-z]+$/.test(text)) return false;
  const body = text.slice(0, -CHECKSUM_DIGITS);
  return text === body + base62(BigInt(crc32(body)), CHECKSUM_DIGITS);
}

export function apiKeyPrefix(key: string): string {
  return key.slice(0, PREFIX_CHARACTERS);
}

/** How keys and session tokens are stored: their SHA-256, hex. Both are random, so that needs no salt. */
export function hashSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}
