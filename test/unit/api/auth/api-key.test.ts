import { randomBytes } from 'node:crypto';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import {
  apiKeyPrefix,
  derivedApiKey,
  formatApiKey,
  hashSecret,
  isWellFormedApiKey,
  randomApiKey,
} from '../../../../api/auth/api-key.ts';

describe('API keys', () => {
  it('have the format tds_, 32 bytes in base62, CRC-32 in six digits', () => {
    // Computed apart from this program, with Python's zlib.crc32.
    expect(formatApiKey(Buffer.alloc(32, 0))).toBe(`tds_${'0'.repeat(43)}2Ohh4Z`);
    expect(formatApiKey(Buffer.alloc(32, 0xff))).toBe(
      'tds_yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp10l50u7',
    );
    expect(formatApiKey(Buffer.from([...Array(32).keys()]))).toBe(
      'tds_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf3Dlqgx',
    );
  });

  it('are well-formed as created, and not with any one character changed', () => {
    const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 32, maxLength: 32 }),
        fc.nat(52),
        fc.nat(61),
        (bytes, place, digit) => {
          const key = formatApiKey(Buffer.from(bytes));
          expect(isWellFormedApiKey(key)).toBe(true);
          const changed = key.slice(0, place) + alphabet.charAt(digit) + key.slice(place + 1);
          expect(isWellFormedApiKey(changed)).toBe(changed === key);
        },
      ),
    );
  });

  it.each([
    '',
    'tds_',
    'tds_é',
    'x'.repeat(53),
    `${randomApiKey()} `,
    `${randomApiKey()}0`,
    randomApiKey().slice(1),
  ])('%j is no key', (text) => {
    expect(isWellFormedApiKey(text)).toBe(false);
  });

  it('are derived from command id and secret for idempotent requests', () => {
    const secret = randomBytes(32);
    const key = derivedApiKey(secret, 'idem:1');
    expect(derivedApiKey(secret, 'idem:1')).toBe(key);
    expect(isWellFormedApiKey(key)).toBe(true);
    expect(derivedApiKey(secret, 'idem:2')).not.toBe(key);
    expect(derivedApiKey(randomBytes(32), 'idem:1')).not.toBe(key);
    const [at, later] = [1, 2].map((issuedAt) => derivedApiKey(secret, 'idem:1', issuedAt));
    expect(new Set([key, at, later]).size).toBe(3);
  });

  it('have a prefix that does not reveal them, and are stored as SHA-256', () => {
    const key = randomApiKey();
    expect(apiKeyPrefix(key)).toBe(key.slice(0, 12));
    expect(hashSecret('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
  });
});
