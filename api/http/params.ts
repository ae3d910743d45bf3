import { z } from 'zod';

import { U256, parseFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import { height } from '../../schemas/messages/common.ts';
import { INTERVALS } from './intervals.ts';

/**
 * Parsers of query and path parameters. Each takes the text as sent; a route makes one optional with `.optional()`. An
 * empty parameter counts as absent; of duplicates the last counts.
 */

/** Fails a transform with this message. */
export const refuse = (context: z.core.$RefinementCtx, message: string): never => {
  context.addIssue({ code: 'custom', message });
  return z.NEVER;
};

/** Pattern in the OpenAPI document; the parser also requires a value below the field's prime. */
const HEX = '^0[xX][0-9a-fA-F]{1,64}$';

/** Any common 0x form of an address or hash, as a canonical felt. */
export function address(description = 'Address in any 0x form') {
  return z
    .string()
    .transform(
      (text, context): Felt =>
        parseFelt(text) ?? refuse(context, 'Enter a valid address (0x and up to 64 hex digits).'),
    )
    .meta({
      description,
      example: '0x49d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7',
      override: { type: 'string', pattern: HEX },
    });
}

/** A block by its height or its hash. */
export function blockId() {
  return z
    .string()
    .transform((text, context): { readonly height: number } | { readonly hash: Felt } => {
      const found = /^[0-9]{1,10}$/.test(text) ? height.safeParse(Number(text)) : undefined;
      if (found?.success === true) return { height: found.data };
      const hash = parseFelt(text);
      return hash === null ? refuse(context, 'Enter a height, or a block hash in any 0x form.') : { hash };
    })
    .meta({
      description: 'Height, or block hash in any 0x form',
      override: { type: 'string', pattern: '^([0-9]{1,10}|0[xX][0-9a-fA-F]{1,64})$' },
    });
}

/** A transaction hash in any 0x form, as a canonical felt. */
export function hash(description = 'Transaction hash in any 0x form') {
  return z
    .string()
    .transform(
      (text, context): Felt =>
        parseFelt(text) ?? refuse(context, 'Enter a valid hash (0x and up to 64 hex digits).'),
    )
    .meta({ description, override: { type: 'string', pattern: HEX } });
}

/** A decimal integer within inclusive bounds, at most 2^53 − 1. */
export function integer(
  options: { min?: number; max?: number; description?: string } = {},
): z.ZodType<number, string> {
  const { min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER, description } = options;
  return z
    .string()
    .transform((text, context): number => {
      if (!/^\s*[+-]?[0-9]{1,1000}\s*$/.test(text)) return refuse(context, 'A valid integer is required.');
      const value = BigInt(text.trim().replace(/^\+/, ''));
      if (value < BigInt(min))
        return refuse(context, `Ensure this value is greater than or equal to ${min}.`);
      if (value > BigInt(max)) return refuse(context, `Ensure this value is less than or equal to ${max}.`);
      return Number(value);
    })
    .meta({
      ...(description === undefined ? {} : { description }),
      override: { type: 'integer', minimum: min, maximum: max },
    });
}

const TOKEN_ID = '^([0-9]{1,78}|0[xX][0-9a-fA-F]{1,64})$';

/** An NFT token id below 2^256, decimal or 0x. */
export function tokenId() {
  return z
    .string()
    .transform((text, context): bigint => {
      if (!new RegExp(TOKEN_ID).test(text)) return refuse(context, 'Enter a valid token id.');
      const value = BigInt(text.toLowerCase());
      return value < U256 ? value : refuse(context, 'Enter a valid token id.');
    })
    .meta({ description: 'Token id, decimal or 0x', override: { type: 'string', pattern: TOKEN_ID } });
}

const TRUE = new Set(['t', 'y', 'yes', 'true', 'on', '1']);
const FALSE = new Set(['f', 'n', 'no', 'false', 'off', '0']);

export function boolean(description?: string): z.ZodType<boolean, string> {
  return z
    .string()
    .transform((text, context): boolean => {
      const word = text.trim().toLowerCase();
      if (TRUE.has(word)) return true;
      return FALSE.has(word) ? false : refuse(context, 'Must be a valid boolean.');
    })
    .meta({ ...(description === undefined ? {} : { description }), override: { type: 'boolean' } });
}

const ISO =
  /^(\d{4})-(\d{2})-(\d{2})(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?\s?(?:([Zz])|([+\- ])(\d{2}):?(\d{2})?)?)?$/;

/**
 * An ISO 8601 date and time as a Date; null if invalid. Without a zone it is UTC; without a time, midnight.
 * A space stands for the `+` that a client forgot to encode. Parts of a millisecond are cut off. The year in UTC
 * must be 1 to 9999, which an answer can show.
 */
export function parseTimestamp(text: string): Date | null {
  const match = ISO.exec(text.trim());
  if (match === null) return null;
  const part = (index: number): number => Number(match[index] ?? 0);
  const [year, month, day, hour, minute, second] = [part(1), part(2), part(3), part(4), part(5), part(6)];
  const millis = Math.trunc(Number(`0.${match[7] ?? '0'}`) * 1000 + 1e-7);
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  const isDay = year > 0 && date.getUTCMonth() === month - 1 && date.getUTCDate() === day;
  if (!isDay || hour > 23 || minute > 59 || second > 59 || part(10) > 23 || part(11) > 59) return null;
  date.setUTCHours(hour, minute, second, millis);
  const offset = (part(10) * 60 + part(11)) * 60_000;
  date.setTime(date.getTime() + (match[9] === '-' ? offset : -offset));
  const yearInUtc = date.getUTCFullYear();
  return yearInUtc < 1 || yearInUtc > 9999 ? null : date;
}

export function timestamp(description = 'ISO 8601, UTC by default') {
  return z
    .string()
    .transform(
      (text, context): Date =>
        parseTimestamp(text) ??
        refuse(
          context,
          'Datetime has wrong format. Use one of these formats instead: YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z].',
        ),
    )
    .meta({ description, override: { type: 'string', format: 'date-time' } });
}

/** The bucket size of a history. */
export function interval() {
  return z
    .enum(INTERVALS, { error: `Must be one of: ${INTERVALS.join(', ')}.` })
    .meta({ description: 'Default 1 hour; buckets are in UTC, weeks begin on Monday' });
}

/**
 * Free text without NUL characters, which PostgreSQL cannot store. Lengths are in characters.
 *
 * @param options.isTrimmed ignores surrounding whitespace
 */
export function text(
  options: { min?: number; max?: number; description?: string; isTrimmed?: boolean } = {},
) {
  const { min = 0, max = 1000, description, isTrimmed = false } = options;
  return (isTrimmed ? z.string().trim() : z.string())
    .max(max)
    .min(min)
    .refine((value) => !value.includes('\0'), 'Null characters are not allowed.')
    .meta(description === undefined ? {} : { description });
}

/** A page number, `last`, or `invalid`, which `resolvePage` answers 404. */
export type PageParameter = number | 'last' | 'invalid';

/** A network's name, case-insensitive. */
export function networkFilter() {
  return text({ max: 100 })
    .transform((name) => name.trim().toLowerCase())
    .meta({
      description: 'Network, such as mainnet or sepolia',
      override: { type: 'string', maxLength: 100 },
    });
}

export function page(): z.ZodType<PageParameter, string | undefined> {
  return z
    .string()
    .optional()
    .transform((text): PageParameter => {
      if (text === undefined) return 1;
      if (text === 'last') return 'last';
      if (!/^\s*\+?[0-9]{1,15}\s*$/.test(text)) return 'invalid';
      const number = Number(text);
      return number === 0 ? 'invalid' : number;
    })
    .meta({
      description: 'Page number from 1, or `last`; a page that does not exist returns 404',
      override: ({ jsonSchema }) => {
        delete jsonSchema.type;
        Object.assign(jsonSchema, {
          anyOf: [{ type: 'integer', minimum: 1 }, { const: 'last' }],
          default: 1,
        });
      },
    });
}

/** The format of an answer with rows: see `hasCsv` of a route. */
export function format() {
  return z.enum(['json', 'csv'], { error: 'Must be json or csv.' }).optional().meta({
    description:
      '`json`, the default, or `csv`: the rows of `data`, with the headers `X-Next-Start-Time`, `X-Complete-From` and `X-Complete` for the fields of these names',
  });
}

/** Rows per page: an invalid value or 0 means the default, a larger one the maximum. */
export function limit(
  options: { fallback?: number; max?: number } = {},
): z.ZodType<number, string | undefined> {
  const { fallback = 25, max = 100 } = options;
  return z
    .string()
    .optional()
    .transform((text): number => {
      if (text === undefined || !/^\s*\+?[0-9]+\s*$/.test(text)) return fallback;
      const number = Number(text);
      return number === 0 ? fallback : Math.min(number, max);
    })
    .meta({
      description: `Rows per page, at most ${max}; an invalid value means ${fallback}`,
      override: { type: 'integer', minimum: 1, maximum: max, default: fallback },
    });
}

/**
 * Query of counts by hour or day between two times.
 *
 * @param most hours or days of an answer without start_time
 */
export function hoursOrDays(most: number) {
  return z.object({
    interval: z
      .enum(['1 hour', '1 day'], { error: 'Must be one of: 1 hour, 1 day.' })
      .default('1 hour')
      .meta({ description: 'Default 1 hour; in UTC' }),
    start_time: timestamp(
      `ISO 8601, inclusive, UTC by default; ${most} hours or days before end_time when absent`,
    ).optional(),
    end_time: timestamp('ISO 8601, inclusive, UTC by default; now when absent').optional(),
  });
}
