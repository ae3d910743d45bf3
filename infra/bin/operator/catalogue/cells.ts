import { jsonOf } from '../../../json.ts';

/**
 * CSV cells. An empty cell means the default. A list is JSON or separated by `|`. A text that a spreadsheet would run as a
 * formula is prefixed with an apostrophe, as spreadsheets do; reading removes one apostrophe, so values round-trip.
 */

const LISTS: ReadonlySet<string> = new Set(['tags', 'networks']);
const FLAGS: ReadonlySet<string> = new Set([
  'is_featured',
  'is_verified',
  'is_active',
  'active',
  'verified',
  'common',
  'public',
  'hidden',
]);
const NUMBERS: ReadonlySet<string> = new Set([
  'tvl_usd',
  'daily_users',
  'total_transactions',
  'review_count',
  'priority',
  'total_impression_limit',
  'transaction_count',
]);

/** A text that a spreadsheet would run as a formula, prefixed or not. */
const FORMULA = /^'*[=+\-@\t\r＝＋－＠]/;
const KEPT_FROM_RUNNING = /^'+[=+\-@\t\r＝＋－＠]/;

const TRUTHS: ReadonlyMap<string, boolean> = new Map([
  ['true', true],
  ['false', false],
]);

/** Undefined for an empty cell; an invalid value stays text, which the field's schema rejects. */
export function readCell(field: string, cell: string): unknown {
  if (cell === '') return undefined;
  if (LISTS.has(field)) return readList(cell);
  if (FLAGS.has(field)) return TRUTHS.get(cell.trim().toLowerCase()) ?? cell;
  if (NUMBERS.has(field)) return /^\s*[+-]?[0-9.]+(e[+-]?[0-9]+)?\s*$/i.test(cell) ? Number(cell) : cell;
  return KEPT_FROM_RUNNING.test(cell) ? cell.slice(1) : cell;
}

export function writeCell(value: unknown): string {
  if (value === null || value === undefined) return '';
  if (typeof value === 'string') return FORMULA.test(value) ? `'${value}` : value;
  return Array.isArray(value) && value.length === 0 ? '' : JSON.stringify(value);
}

function readList(cell: string): unknown {
  if (!cell.trimStart().startsWith('[')) return cell.split('|').map((part) => part.trim());
  return jsonOf(cell) ?? cell;
}
