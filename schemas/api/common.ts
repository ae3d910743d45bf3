import { z } from 'zod';

import { canonicalHex } from './values.ts';

/** ISO 8601 in UTC, `Z`. */
export const isoTimestamp = z.iso.datetime().meta({ example: '2026-01-02T03:04:05.678Z' });

/** The body of every error. */
export const errorBody = z
  .object({
    success: z.literal(false).optional(),
    detail: z.string(),
    code: z.string(),
    status: z.int(),
    request_id: z.string(),
    errors: z.record(z.string(), z.array(z.string())).optional(),
  })
  .loose()
  .meta({ id: 'Error' });

/** The body of a 409 where the chain has another block than the one that the client asks for. */
export const revertedBlockBody = errorBody
  .extend({
    code: z.literal('reverted_block'),
    canonical_hash: canonicalHex.meta({ description: 'Hash of the block at this height now' }),
  })
  .meta({ id: 'RevertedBlock' });

/** A paginated list. `links.next` is a query string to append to the path. */
export function envelopeOf<T extends z.ZodType>(result: T) {
  return z.object({
    links: z.object({
      next: z.string().nullable(),
      previous: z.string().nullable(),
      /** Opaque; constant cost per page, stable while new rows arrive. */
      next_cursor: z.string().nullable().optional(),
    }),
    count: z.int().min(0),
    /** Present, and true, if `count` is an estimate. */
    count_is_estimate: z.literal(true).optional(),
    total_pages: z.int().min(1),
    results: z.array(result),
  });
}
