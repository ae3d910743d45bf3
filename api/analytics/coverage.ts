/** How far deferred tables have come. */
export interface Coverage {
  /** -1: no block is covered. */
  readonly upTo: number;
  readonly isLate: boolean;
}

/** `X-Indexed-Block` of an answer from deferred tables: the block up to which they are derived, not the newest one. */
export function coverageHeaders(coverage: Coverage | null): Readonly<Record<string, string>> {
  return coverage === null || coverage.upTo < 0 ? {} : { 'X-Indexed-Block': String(coverage.upTo) };
}

/** The block before the lowest due one. */
export function coverageOf(
  newest: number,
  { dueFrom, isLate }: { readonly dueFrom: number | null; readonly isLate: boolean },
): Coverage {
  return { upTo: dueFrom === null ? newest : Math.min(newest, dueFrom - 1), isLate };
}
