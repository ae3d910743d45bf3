import { createCipheriv, createDecipheriv, createHash } from 'node:crypto';

/**
 * Mixes four 32-bit words into one (murmur3's rounds and finaliser), as a source of reproducible chance: some 10 ns a
 * call, where sha256 takes a microsecond.
 */
export function mix(a: number, b: number, c: number, d: number): number {
  let h = round(round(round(a, b), c), d);
  h ^= h >>> 16;
  h = Math.imul(h, 0x85ebca6b);
  h ^= h >>> 13;
  h = Math.imul(h, 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

function round(h: number, word: number): number {
  let k = Math.imul(word, 0xcc9e2d51);
  k = Math.imul((k << 15) | (k >>> 17), 0x1b873593);
  const x = h ^ k;
  return (Math.imul((x << 13) | (x >>> 19), 5) + 0xe6546b64) | 0;
}

/** A seed as a word for `mix`. */
export function seedWord(seed: string): number {
  return sha256(`word:${seed}`).readUInt32BE(0);
}

export function sha256(text: string | Uint8Array): Buffer {
  return createHash('sha256').update(text).digest();
}

/** A felt below 2^248 from a text, for addresses and class hashes. */
export function feltOfText(text: string): bigint {
  return BigInt(`0x${sha256(text).subarray(0, 31).toString('hex')}`);
}

const POOL_BITS = 16;
const pool = Array.from({ length: 2 ** (POOL_BITS - 6) + 1 }, (_, i) =>
  sha256(`pool:${i}`).toString('hex'),
).join('');

/**
 * A felt in hex from words, for values that are never decoded (signatures, commitments, roots). It consists of three
 * pieces of precomputed sha256 output, at a tenth of the cost of hashing the words.
 */
export function feltOfWords(seed: number, a: number, b: number, c: number): string {
  let felt = '0x';
  for (let i = 0; i < 3; i++) {
    const at = mix(seed + i, a, b, c);
    if (i === 0) felt += String(1 + (at % 7));
    const place = at >>> (32 - POOL_BITS);
    felt += pool.slice(place, place + (i === 2 ? 20 : 21));
  }
  return felt;
}

/** Real nodes omit leading zeros of a felt. */
function unpadded(hex: string): string {
  const digits = hex.replace(/^0+/, '');
  return `0x${digits === '' ? '0' : digits}`;
}

export function hexOf(value: bigint): string {
  return `0x${value.toString(16)}`;
}

const LOW = (1n << 128n) - 1n;

/** The halves of a u256, the low one first. */
export function u256(value: bigint): [low: string, high: string] {
  return [hexOf(value & LOW), hexOf(value >> 128n)];
}

export const idTags = { transaction: 2, account: 3 } as const;
type IdTag = (typeof idTags)[keyof typeof idTags];

/** The content of an id: `a` is below 2^48, `b` and `c` below 2^32. */
type IdParts = { tag: IdTag; a: number; b: number; c: number };

export type IdCodec = {
  encode(tag: IdTag, a: number, b: number, c: number): string;
  decode(id: string): IdParts | null;
};

const CHECK = 0xa5;

/**
 * Hashes that can be decoded: 15 bytes of a sha256 checksum, then the content as 16 enciphered bytes. A transaction is found by
 * its hash without an index, at any height and after a restart.
 */
export function createIdCodec(seed: string): IdCodec {
  const key = sha256(`ids:${seed}`).subarray(0, 16);
  const salt = sha256(`ids-top:${seed}`);
  const cipher = createCipheriv('aes-128-ecb', key, null).setAutoPadding(false);
  const decipher = createDecipheriv('aes-128-ecb', key, null).setAutoPadding(false);
  const top = (low: Buffer) => sha256(Buffer.concat([salt, low])).subarray(0, 15);

  return {
    encode(tag, a, b, c) {
      const plain = Buffer.alloc(16);
      plain.writeUInt8(tag, 0);
      plain.writeUIntBE(a, 1, 6);
      plain.writeUInt32BE(b >>> 0, 7);
      plain.writeUInt32BE(c >>> 0, 11);
      plain.writeUInt8(CHECK, 15);
      const low = cipher.update(plain);
      return unpadded(top(low).toString('hex') + low.toString('hex'));
    },
    decode(id) {
      const digits = id.slice(2).replace(/^0+/, '').toLowerCase();
      if (digits.length > 62) return null;
      const bytes = Buffer.from(digits.padStart(62, '0'), 'hex');
      if (bytes.length !== 31) return null;
      const low = bytes.subarray(15);
      if (!top(low).equals(bytes.subarray(0, 15))) return null;
      const plain = decipher.update(low);
      const tag = Object.values(idTags).find((known) => known === plain[0]);
      if (tag === undefined || plain[15] !== CHECK) return null;
      return { tag, a: plain.readUIntBE(1, 6), b: plain.readUInt32BE(7), c: plain.readUInt32BE(11) };
    },
  };
}

/** An item that is known to exist. */
export function item<T>(items: ArrayLike<T>, index: number): T {
  const found = items[index];
  if (found === undefined) throw new RangeError(`index ${index} is out of range of ${items.length} items`);
  return found;
}
