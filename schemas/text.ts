import type { Felt } from './felt.ts';

/**
 * Text as contracts give it: felt short strings, `ByteArray`s, and arrays of short strings. What comes out is what the
 * chain said, made storable; nothing is trimmed, translated or filtered, also not right-to-left marks.
 *
 *  - bytes that are not UTF-8 become U+FFFD;
 *  - U+0000, which PostgreSQL's text cannot hold, becomes U+2400 (␀, its visible symbol);
 *  - a text of more than `TEXT_LIMIT_BYTES` bytes, or what a caller allows, is cut at a character and ends in `…`.
 */
export const TEXT_LIMIT_BYTES = 1024;

/** Bytes of a full word of a `ByteArray`; also the most that a short string holds. */
const WORD_BYTES = 31;

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true });

/** Replaces what PostgreSQL's text cannot hold. For texts that did not come through the decoders below. */
export function storable(text: string): string {
  return text.replaceAll('\0', '\u2400').toWellFormed();
}

/** Whether PostgreSQL can hold a text as it is: no U+0000, and no half of a surrogate pair, which its JSON refuses. */
export function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes('\0');
}

/** Whether it holds what no link has as it is: blanks, line breaks, control characters. */
export function hasWhitespaceOrControl(text: string): boolean {
  return /[\s\p{Cc}]/u.test(text);
}

/** A felt short string; `null` for a felt of more than 31 bytes, which is none. */
export function decodeShortString(felt: Felt): string | null {
  return joinBytes([shortStringBytes(felt)], TEXT_LIMIT_BYTES);
}

/**
 * The answer of `name()` or `symbol()`, whichever way the contract gives it: one felt is a short string; a length and
 * so many felts an array of short strings; a length, so many full words, a pending word and its length a `ByteArray`.
 * The lengths tell them apart (n + 1 against n + 3 felts). `null` when it is none of them.
 */
export function decodeText(felts: readonly Felt[], limitBytes = TEXT_LIMIT_BYTES): string | null {
  const [first, ...rest] = felts;
  if (first === undefined) return null;
  if (rest.length === 0) return decodeShortString(first);
  const length = BigInt(first);
  if (length === BigInt(rest.length)) return decodeShortStrings(rest, limitBytes);
  if (length === BigInt(rest.length - 2)) return decodeByteArray(rest, limitBytes);
  return null;
}

/** The answer of `decimals()`; `null` when it is not one number of 0 to 255. */
export function decodeDecimals(felts: readonly Felt[]): number | null {
  const [first] = felts;
  if (first === undefined || felts.length !== 1) return null;
  const value = BigInt(first);
  return value <= 255n ? Number(value) : null;
}

/** Full words, then the pending word, then the pending word's length in bytes. */
function decodeByteArray(felts: readonly Felt[], limitBytes: number): string | null {
  const words = felts.slice(0, -2).map((felt) => lastBytes(felt, WORD_BYTES));
  const [pending, pendingLength] = felts.slice(-2);
  if (pending === undefined || pendingLength === undefined || BigInt(pendingLength) >= BigInt(WORD_BYTES)) {
    return null;
  }
  return joinBytes([...words, lastBytes(pending, Number(pendingLength))], limitBytes);
}

/** Joined before they are decoded: a character may lie across two of them. */
function decodeShortStrings(felts: readonly Felt[], limitBytes: number): string | null {
  return joinBytes(felts.map(shortStringBytes), limitBytes);
}

function joinBytes(parts: readonly (Buffer | null)[], limitBytes: number): string | null {
  const whole = parts.filter((part) => part !== null);
  return whole.length === parts.length ? decodeBytes(Buffer.concat(whole), limitBytes) : null;
}

/** The bytes of a short string, which does not say how long it is: leading zeros are not part of it. */
function shortStringBytes(felt: Felt): Buffer | null {
  const bytes = lastBytes(felt, WORD_BYTES);
  if (bytes === null) return null;
  const start = bytes.findIndex((byte) => byte !== 0);
  return start === -1 ? Buffer.alloc(0) : bytes.subarray(start);
}

/** The last `length` bytes of a felt, big-endian; `null` when it needs more. */
function lastBytes(felt: Felt, length: number): Buffer | null {
  const bytes = Buffer.from(felt.slice(2), 'hex');
  const end = bytes.length - length;
  return bytes.subarray(0, end).every((byte) => byte === 0) ? bytes.subarray(end) : null;
}

function decodeBytes(bytes: Buffer, limitBytes: number): string {
  if (bytes.length <= limitBytes) return storable(utf8.decode(bytes));
  // Back to the start of the character that lies across the limit; a character has at most three bytes after its first.
  let end = limitBytes;
  while (end > limitBytes - 3 && ((bytes[end] ?? 0) & 0b1100_0000) === 0b1000_0000) end -= 1;
  return `${storable(utf8.decode(bytes.subarray(0, end)))}…`;
}
