import { z } from 'zod';

/** Parsers of JSON body fields whose rules or messages differ from zod's. */

/** Text that PostgreSQL can store: no NUL characters, no lone surrogates. Trimmed by default, and not blank. */
export function textField(options: { max: number; isTrimmed?: boolean; description?: string }) {
  const { max, isTrimmed = true, description } = options;
  const base = isTrimmed ? z.string().trim() : z.string();
  return base
    .min(1)
    .max(max)
    .refine((value) => !value.includes('\0'), 'Null characters are not allowed.')
    .refine((value) => value.isWellFormed(), 'Surrogate characters are not allowed.')
    .meta(description === undefined ? {} : { description });
}

/** A JSON number without a fraction; strings are rejected. */
export function integerField(options: { min?: number; max?: number; description?: string } = {}) {
  const { min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER, description } = options;
  return z
    .int({
      error: ({ code, input }) => {
        if (code !== 'invalid_type') return undefined;
        if (input === undefined) return 'This field is required.';
        return input === null ? 'This field may not be null.' : 'A valid integer is required.';
      },
    })
    .min(min)
    .max(max)
    .meta(description === undefined ? {} : { description });
}
