/** Texts for amounts, prices and times. Amounts are integers in the smallest unit; no digit is rounded. */

import { formatAmount } from 'token-data-service-client';

/** Most leading zeros of a fraction that are written out. */
const MAX_ZEROS = 12;
/** Digits of a fraction in short texts: after a whole part, or after the leading zeros. */
const SHORT_DIGITS = 4;
/** Longest whole part that is written out in short texts. */
const MAX_DIGITS = 18;

const grouped = (digits: string): string => digits.replaceAll(/\B(?=(\d{3})+$)/g, ',');

/** Splits a decimal text without an exponent. */
function parts(text: string): { sign: string; whole: string; fraction: string } {
  const [, sign = '', whole = '0', fraction = ''] = /^(-?)(\d+)(?:\.(\d*))?$/.exec(text) ?? [];
  return { sign, whole, fraction: fraction.replace(/0+$/, '') };
}

/** The whole amount, thousands separated: `amountText(1234500n, 3)` is `1,234.5`. */
export function amountText(amount: bigint, decimals: number): string {
  return groupedDecimal(formatAmount(amount, decimals));
}

/** A decimal text with its thousands separated. */
export function groupedDecimal(text: string): string {
  const { sign, whole, fraction } = parts(text);
  return `${sign}${grouped(whole)}${fraction === '' ? '' : `.${fraction}`}`;
}

/**
 * The amount cut, never rounded, to a few digits after the point; `…` stands for what is cut. A very large one has its power of
 * ten instead: `7.3848…e60`.
 */
export function shortAmount(amount: bigint, decimals: number): string {
  const { sign, whole, fraction } = parts(formatAmount(amount, decimals));
  const zeros = /^0*/.exec(fraction)?.[0].length ?? 0;
  if (whole === '0' && fraction !== '' && zeros > MAX_ZEROS) {
    const bound = `0.${'0'.repeat(MAX_ZEROS - 1)}1`;
    return sign === '' ? `< ${bound}` : `> -${bound}`;
  }
  if (whole.length > MAX_DIGITS)
    return `${sign}${whole[0]}.${whole.slice(1, 1 + SHORT_DIGITS)}…e${whole.length - 1}`;
  const shown = fraction.slice(0, whole === '0' ? zeros + SHORT_DIGITS : SHORT_DIGITS);
  const point = shown === '' ? '' : `.${shown}`;
  return `${sign}${grouped(whole)}${point}${shown.length < fraction.length ? '…' : ''}`;
}

/** Exact text of a JSON number, without an exponent. */
export function numberText(value: number): string {
  const text = String(value);
  const [, sign = '', head = '', tail = '', exponent = ''] =
    /^(-?)(\d)(?:\.(\d+))?e([+-]\d+)$/.exec(text) ?? [];
  if (exponent === '') return text;
  const power = Number(exponent);
  const digits = head + tail;
  if (power < 0) return `${sign}0.${'0'.repeat(-power - 1)}${digits}`;
  const whole = digits.padEnd(power + 1, '0');
  return `${sign}${whole.slice(0, power + 1)}${digits.length > power + 1 ? `.${digits.slice(power + 1)}` : ''}`;
}

/** US dollars for tables, rounded: cents above one dollar, else four significant digits. Hover shows `usdText`. */
export function shortUsd(value: number): string {
  if (value === 0) return '$0';
  if (Math.abs(value) < 1e-12) return '< $0.000000000001';
  if (Math.abs(value) >= 1e15) return `$${value.toExponential(3).replace('e+', 'e')}`;
  const options =
    Math.abs(value) >= 1
      ? { minimumFractionDigits: 2, maximumFractionDigits: 2 }
      : { maximumSignificantDigits: 4 };
  return `${value < 0 ? '-' : ''}$${new Intl.NumberFormat('en-US', options).format(Math.abs(value))}`;
}

export const usdText = (value: number | string): string =>
  `$${groupedDecimal(typeof value === 'number' ? numberText(value) : value)}`;

export const countText = (count: number): string => grouped(String(count));

/** A count and what it counts, in the singular or plural: 1 sender, 2 senders. */
export const countOf = (count: number, singular: string): string =>
  `${countText(count)} ${singular}${count === 1 ? '' : 's'}`;

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

/** Bytes with three digits: `12.3 MB`. */
export function bytesText(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  // Rounded first: 999,999 are 1.00 MB.
  const rounded = Number(bytes.toPrecision(3));
  const power = Math.min(UNITS.length - 1, Math.floor(Math.log10(rounded) / 3));
  return `${(rounded / 1000 ** power).toPrecision(3)} ${UNITS[power]}`;
}

const two = (value: number): string => String(value).padStart(2, '0');

/** Local time to the second: `2026-11-25 18:54:32`. */
export function localTime(time: Date): string {
  return [
    `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`,
    `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`,
  ].join(' ');
}

/** ISO 8601 in UTC of the local time in an input; null if it is not a time. */
export function isoOfInput(text: string): string | null {
  const time = new Date(text);
  return Number.isNaN(time.getTime()) ? null : time.toISOString();
}

/** `2026-11-25 18:54:32 UTC`. */
export const utcTime = (time: Date): string => `${time.toISOString().slice(0, 19).replace('T', ' ')} UTC`;

/** The first and last digits of an address or hash, without leading zeros: `0x4718f5…8d938d`. */
export function shortHex(hex: string): string {
  const digits = hex.replace(/^0x0*(?=.)/, '');
  return digits.length <= 13 ? `0x${digits}` : `0x${digits.slice(0, 6)}…${digits.slice(-6)}`;
}

/**
 * A text of unknown origin in one line: without control characters and marks that turn the direction of writing, and of at most
 * so many characters.
 */
export function printable(text: string, most = 64): string {
  const clean = text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ').trim();
  const characters = Array.from(clean);
  return characters.length <= most ? clean : `${characters.slice(0, most - 1).join('')}…`;
}
