/**
 * Felts and 256-bit numbers. A felt is lowercase `0x` + 64 hex digits (`Felt`) in every message, table and answer. It is
 * normalised once, where it enters, so that code behind that border can compare strings.
 */

/** Prime of Starknet's field, 2^251 + 17·2^192 + 1. Every felt is below it. */
export const FELT_PRIME = (1n << 251n) + 17n * (1n << 192n) + 1n;

export const U128 = 1n << 128n;
export const U256 = 1n << 256n;

/** Lowercase `0x` + 64 hex digits, below the prime. */
export type Felt = string & { readonly __felt: unique symbol };

/** Fixed length, so that strings compare as their values do. */
const hex64 = (value: bigint) => `0x${value.toString(16).padStart(64, '0')}`;
const PRIME_TEXT = hex64(FELT_PRIME);
const U128_TEXT = hex64(U128);

/** 1 for the codes of lowercase hex digits. */
const IS_DIGIT = new Uint8Array(256);
for (const digit of '0123456789abcdef') IS_DIGIT[digit.charCodeAt(0)] = 1;
/** The characters of the text that is being checked. */
const characters = Buffer.alloc(66);
const LOOSE = /^0[xX][0-9a-fA-F]{1,64}$/;
const ZEROES = hex64(0n);

/**
 * Whether a text of at most 66 characters has only lowercase hex digits after a prefix. By hand, as every felt of the log is
 * checked: a felt takes 55 ns, with a pattern 120. With `charCodeAt` it took 75, but 355 in a process with ioredis: a class that
 * extends `String`, as one of its does, slows `charCodeAt` down in the whole process.
 */
function isLowerHex(text: string, prefix: number): boolean {
  // A character that is not ASCII takes several bytes, none of them a digit's, or is not written where it would be cut.
  if (characters.write(text) !== text.length) return false;
  let isHex = 1;
  for (let index = prefix; index < text.length; index += 1) isHex &= IS_DIGIT[characters[index] ?? 0] ?? 0;
  return isHex === 1;
}

/** Whether a value is a felt in canonical form. */
export function isFelt(value: unknown): value is Felt {
  if (typeof value !== 'string' || value.length !== 66 || !value.startsWith('0x0')) return false;
  return isLowerHex(value, 3) && value < PRIME_TEXT;
}

/**
 * Parses any common hex form (`0x1`, unpadded, upper case, up to 64 digits); `null` if it is not a felt.
 * Decimal and hex without `0x` are rejected because they are ambiguous.
 */
export function parseFelt(text: string): Felt | null {
  // Nodes write felts in lower case.
  const isLower = text.startsWith('0x') && text.length > 2 && text.length <= 66 && isLowerHex(text, 2);
  if (!isLower && !LOOSE.test(text)) return null;
  const lower = isLower ? text : text.toLowerCase();
  const canonical = lower.length === 66 ? lower : ZEROES.slice(0, 68 - lower.length) + lower.slice(2);
  // A string below the prime begins with 0x0.
  return canonical < PRIME_TEXT ? (canonical as Felt) : null;
}

/** The canonical form of a value; throws a RangeError outside the field. */
export function toFelt(value: bigint): Felt {
  const felt = value < 0n ? null : parseFelt(`0x${value.toString(16)}`);
  if (felt === null) throw new RangeError(`not a felt: ${value}`);
  return felt;
}

export const ZERO_FELT: Felt = toFelt(0n);

/** ETH's and STRK's contracts: the two tokens fees are paid in (WEI and FRI). Source: Starknet documentation. */
export const ETH_TOKEN: Felt = toFelt(0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7n);
export const STRK_TOKEN: Felt = toFelt(0x04718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938dn);

/** Joins the halves of a u256; `null` if either is 2^128 or more. */
export function joinU256(low: Felt, high: Felt): bigint | null {
  if (low >= U128_TEXT || high >= U128_TEXT) return null;
  return high === ZERO_FELT ? BigInt(low) : BigInt(`0x${high.slice(34)}${low.slice(34)}`);
}
