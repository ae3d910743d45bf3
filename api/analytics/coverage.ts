import type { Coverage } from '../../projections/due-blocks.ts';

/** `X-Indexed-Block` of an answer from deferred tables: the block up to which they are derived, not the newest one. */
export function coverageHeaders(coverage: Coverage | null): Readonly<Record<string, string>> {
  return coverage === null || coverage.upTo < 0 ? {} : { 'X-Indexed-Block': String(coverage.upTo) };
}
