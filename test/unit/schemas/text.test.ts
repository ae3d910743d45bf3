import fc from 'fast-check';
import { byteArray, shortString } from 'starknet';
import { describe, expect, it } from 'vitest';

import { parseFelt, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import {
  TEXT_LIMIT_BYTES,
  decodeDecimals,
  decodeShortString,
  decodeText,
  isStorable,
  storable,
} from '../../../schemas/text.ts';

/** Bytes as a big-endian number, independent of the decoder. */
function word(bytes: readonly number[]): Felt {
  return toFelt(bytes.reduce((value, byte) => value * 256n + BigInt(byte), 0n));
}

function encodeByteArray(bytes: readonly number[]): Felt[] {
  const full = Math.floor(bytes.length / 31);
  const words = Array.from({ length: full }, (_, i) => word(bytes.slice(i * 31, i * 31 + 31)));
  const pending = bytes.slice(full * 31);
  return [toFelt(BigInt(full)), ...words, word(pending), toFelt(BigInt(pending.length))];
}

const bytesOf = (text: string): number[] => [...new TextEncoder().encode(text)];
const felts = (...values: (bigint | number)[]): Felt[] => values.map((value) => toFelt(BigInt(value)));

const anyText = fc.string({ unit: 'binary', maxLength: 200 });
const asciiText = fc.string({ unit: 'grapheme-ascii', minLength: 1, maxLength: 31 });

describe('decodeText', () => {
  it('decodes every ByteArray of valid UTF-8, with U+0000 replaced', () => {
    fc.assert(
      fc.property(anyText, (text) => {
        expect(decodeText(encodeByteArray(bytesOf(text)))).toBe(text.replaceAll('\u0000', '␀'));
      }),
    );
  });

  it('decodes every short string of up to 31 bytes', () => {
    fc.assert(
      fc.property(anyText, (text) => {
        const bytes = bytesOf(text);
        fc.pre(bytes.length <= 31 && bytes[0] !== 0);
        expect(decodeText([word(bytes)])).toBe(text.replaceAll('\u0000', '␀'));
      }),
    );
  });

  it('agrees with starknet.js on ASCII, all that library supports', () => {
    fc.assert(
      fc.property(asciiText, (text) => {
        const felt = parseFelt(shortString.encodeShortString(text));
        expect(felt === null ? null : decodeShortString(felt)).toBe(text);
      }),
    );
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme-ascii', maxLength: 100 }), (text) => {
        const theirs = byteArray.byteArrayFromString(text);
        const answer = [
          BigInt(theirs.data.length),
          ...theirs.data.map(BigInt),
          BigInt(theirs.pending_word),
          BigInt(theirs.pending_word_len),
        ];
        expect(decodeText(felts(...answer))).toBe(text);
      }),
    );
  });

  it('joins an array of short strings before decoding, as a character may span two', () => {
    const [first, second] = [bytesOf('Ün').slice(0, 1), bytesOf('Ün').slice(1)];
    expect(decodeText([toFelt(2n), word(first), word(second)])).toBe('Ün');
    expect(decodeText([toFelt(2n), word(bytesOf('Long ')), word(bytesOf('Name'))])).toBe('Long Name');
    expect(decodeText([toFelt(1n), word(bytesOf('X'))])).toBe('X');
  });

  it('returns only text that PostgreSQL and JSON can store', () => {
    const felt = fc.bigInt({ min: 0n, max: (1n << 251n) - 1n }).map(toFelt);
    const hostile = fc.oneof(
      fc.array(felt, { maxLength: 8 }),
      fc.uint8Array({ maxLength: 3000 }).map((bytes) => encodeByteArray([...bytes])),
    );
    fc.assert(
      fc.property(hostile, (answer) => {
        const text = decodeText(answer);
        if (text === null) return;
        expect(text).not.toContain('\u0000');
        expect(text.isWellFormed()).toBe(true);
        // A byte that is not UTF-8 becomes U+FFFD, of three bytes.
        expect(Buffer.byteLength(text)).toBeLessThanOrEqual(TEXT_LIMIT_BYTES * 3 + 3);
      }),
    );
  });

  it('keeps right-to-left marks, four-byte characters and byte order marks', () => {
    const text = '\uFEFF\u202Enekot 🐺 \u200F';
    expect(decodeText(encodeByteArray(bytesOf(text)))).toBe(text);
  });

  it('replaces bytes that are not UTF-8', () => {
    expect(decodeText(encodeByteArray([0x41, 0xff, 0xfe, 0x42]))).toBe('A\uFFFD\uFFFDB');
    expect(decodeText([word([0x41, 0xc3])])).toBe('A\uFFFD');
    // A surrogate half written as UTF-8.
    expect(decodeText([word([0xed, 0xa0, 0x80])])).toBe('\uFFFD\uFFFD\uFFFD');
  });

  it('cuts a long text between characters and marks the cut', () => {
    expect(decodeText(encodeByteArray(bytesOf('a'.repeat(TEXT_LIMIT_BYTES))))).toBe(
      'a'.repeat(TEXT_LIMIT_BYTES),
    );
    expect(decodeText(encodeByteArray(bytesOf('a'.repeat(TEXT_LIMIT_BYTES + 1))))).toBe(
      `${'a'.repeat(TEXT_LIMIT_BYTES)}…`,
    );
    for (const shift of [0, 1, 2, 3]) {
      const text = decodeText(encodeByteArray(bytesOf('a'.repeat(shift) + '🐺'.repeat(1000))));
      expect(text).toBe(`${'a'.repeat(shift)}${'🐺'.repeat(Math.floor((TEXT_LIMIT_BYTES - shift) / 4))}…`);
    }
  });

  it.each<[string, Felt[]]>([
    ['nothing', []],
    ['a felt of 32 bytes', felts(1n << 248n)],
    ['two numbers that are no length and text', felts(5, 5)],
    ['a wrong length', felts(2, 0x41, 0, 0)],
    ['a length near 2^251', felts((1n << 251n) - 1n, 0x41, 1)],
    ['a pending length of a full word', felts(0, 0x41, 31)],
    ['a pending length near 2^251', felts(0, 0x41, (1n << 251n) - 1n)],
    ['a pending word longer than its length', felts(0, 0x4142, 1)],
    ['more words than the length says', felts(0, 0x41, 0x42, 0, 0)],
    ['a word of 32 bytes', felts(1, 1n << 248n, 0, 0)],
    ['an array with a felt of 32 bytes', felts(2, 0x41, 1n << 248n)],
  ])('knows no text in %s', (_, answer) => {
    expect(decodeText(answer)).toBeNull();
  });

  it('decodes an empty name as empty, not as missing', () => {
    expect(decodeText(felts(0))).toBe('');
    expect(decodeText(felts(0, 0, 0))).toBe('');
  });
});

describe('decodeDecimals', () => {
  it.each<[string, Felt[], number | null]>([
    ['0', felts(0), 0],
    ['18', felts(18), 18],
    ['255', felts(255), 255],
    ['256', felts(256), null],
    ['2^251 - 1', felts((1n << 251n) - 1n), null],
    ['two felts', felts(18, 0), null],
    ['nothing', [], null],
  ])('reads %s', (_, answer, decimals) => {
    expect(decodeDecimals(answer)).toBe(decimals);
  });
});

describe('storable', () => {
  it('replaces U+0000 and lone surrogates', () => {
    expect(storable('a\u0000b\ud800')).toBe('a␀b\uFFFD');
  });

  it.each(['\u0000', 'a\ud800b', '\udc00', '\udc00\ud800'])('isStorable rejects %j', (text) => {
    expect(isStorable(text)).toBe(false);
    expect(isStorable(storable(text))).toBe(true);
  });
});
