import type { Felt } from './felt.ts';

/**
 * Decodes text of contracts: felt short strings, `ByteArray`s, and arrays of short strings. The text is kept as the chain
 * gave it, including blanks and right-to-left marks, except where PostgreSQL could not store it:
 *
 *  - bytes that are not UTF-8 become U+FFFD;
 *  - U+0000 becomes U+2400 (␀, its visible symbol);
 *  - text longer than `TEXT_LIMIT_BYTES`, or the caller's limit, is cut between characters and ends in `…`.
 */
export const TEXT_LIMIT_BYTES = 1024;

/** Bytes of a full word of a `ByteArray`; also the maximum of a short string. */
const WORD_BYTES = 31;

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true });

/**
 * Replaces what PostgreSQL cannot store, in text that did not pass the decoders below: no contract may halt a projection.
 */
export function storable(text: string): string {
  return text.replaceAll('\0', '\u2400').toWellFormed();
}

export function storableOrNull(text: string | null): string | null {
  return text === null ? null : storable(text);
}

/** Whether PostgreSQL can store a text unchanged: no U+0000, and no unpaired surrogate, which its JSON rejects. */
export function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes('\0');
}

/** Whether a text contains characters that a URL must escape: whitespace or control characters. */
export function hasWhitespaceOrControl(text: string): boolean {
  return /[\s\p{Cc}]/u.test(text);
}

/** Decodes a felt short string; `null` if the felt has more than 31 bytes. */
export function decodeShortString(felt: Felt): string | null {
  return joinBytes([shortStringBytes(felt)], TEXT_LIMIT_BYTES);
}

/**
 * Decodes the answer of `name()` or `symbol()`: one felt is a short string; a length n and n felts are an array of short
 * strings; a length n, n full words, a pending word and its length are a `ByteArray`. The number of felts distinguishes
 * them (n + 1 against n + 3). `null` if it is none of these.
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

/** Decodes the answer of `decimals()`; `null` if it is not one number from 0 to 255. */
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

/** Joined before decoding, because a character may span two of them. */
function decodeShortStrings(felts: readonly Felt[], limitBytes: number): string | null {
  return joinBytes(felts.map(shortStringBytes), limitBytes);
}

function joinBytes(parts: readonly (Buffer | null)[], limitBytes: number): string | null {
  const whole = parts.filter((part) => part !== null);
  return whole.length === parts.length ? decodeBytes(Buffer.concat(whole), limitBytes) : null;
}

/** A short string carries no length, so leading zero bytes are not part of it. */
function shortStringBytes(felt: Felt): Buffer | null {
  const bytes = lastBytes(felt, WORD_BYTES);
  if (bytes === null) return null;
  const start = bytes.findIndex((byte) => byte !== 0);
  return start === -1 ? Buffer.alloc(0) : bytes.subarray(start);
}

/** The last `length` bytes of a felt, big-endian; `null` if it needs more. */
function lastBytes(felt: Felt, length: number): Buffer | null {
  const bytes = Buffer.from(felt.slice(2), 'hex');
  const end = bytes.length - length;
  return bytes.subarray(0, end).every((byte) => byte === 0) ? bytes.subarray(end) : null;
}

function decodeBytes(bytes: Buffer, limitBytes: number): string {
  if (bytes.length <= limitBytes) return storable(utf8.decode(bytes));
  // Step back to the start of a character that spans the limit; UTF-8 has at most three continuation bytes.
  let end = limitBytes;
  while (end > limitBytes - 3 && ((bytes[end] ?? 0) & 0b1100_0000) === 0b1000_0000) end -= 1;
  return `${storable(utf8.decode(bytes.subarray(0, end)))}…`;
}
