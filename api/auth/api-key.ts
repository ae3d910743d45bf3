import { createHash, createHmac, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const PREFIX = 'tds_';
/** base62 digits of 32 bytes and of a CRC-32. */
const SECRET_DIGITS = 43;
const CHECKSUM_DIGITS = 6;
/** Characters shown to identify a key; the 35 digits left cannot be guessed. */
const SHOWN_CHARACTERS = PREFIX.length + 8;

function base62(value: bigint, digits: number): string {
  let text = '';
  for (let rest = value; text.length < digits; rest /= 62n) text = ALPHABET.charAt(Number(rest % 62n)) + text;
  return text;
}

/** `tds_`, 32 bytes in base62, and the CRC-32 of both as six base62 digits. */
export function formatApiKey(bytes: Buffer): string {
  const body = PREFIX + base62(BigInt(`0x${bytes.toString('hex')}`), SECRET_DIGITS);
  return body + base62(BigInt(crc32(body)), CHECKSUM_DIGITS);
}

export function randomApiKey(): string {
  return formatApiKey(randomBytes(32));
}

/**
 * The key of a request with an Idempotency-Key, so that a retry returns the same key. It depends on the time, so a
 * command that is decided again after its outcome has expired gives another key: a deleted key never becomes valid
 * again.
 *
 * @param issuedAt of the command; absent: as earlier versions derived keys
 */
export function derivedApiKey(secretKey: Buffer, commandId: string, issuedAt?: number): string {
  const decision = issuedAt === undefined ? commandId : `${commandId}:${issuedAt}`;
  return formatApiKey(createHmac('sha256', secretKey).update(`api-key:${decision}`).digest());
}

/** The key that a decided command created, which an earlier version may have derived. */
export function createdApiKey(
  secretKey: Buffer,
  commandId: string,
  { created_at: issuedAt, prefix }: { readonly created_at: number; readonly prefix: string },
): string {
  const key = derivedApiKey(secretKey, commandId, issuedAt);
  return apiKeyPrefix(key) === prefix ? key : derivedApiKey(secretKey, commandId);
}

/** Checks format and checksum, so that a mistyped key is rejected without a look-up. */
export function isWellFormedApiKey(text: string): boolean {
  const length = PREFIX.length + SECRET_DIGITS + CHECKSUM_DIGITS;
  if (text.length !== length || !/^tds_[0-9A-Za-z]+$/.test(text)) return false;
  const body = text.slice(0, -CHECKSUM_DIGITS);
  return text === body + base62(BigInt(crc32(body)), CHECKSUM_DIGITS);
}

export function apiKeyPrefix(key: string): string {
  return key.slice(0, SHOWN_CHARACTERS);
}

/** SHA-256 in hex, as keys and session tokens are stored. Both are random, so no salt is needed. */
export function hashSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}
