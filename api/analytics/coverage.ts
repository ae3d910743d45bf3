import type { ServedBuilds } from '../../projections/served.ts';
import type { AsOf } from '../http/as-of.ts';

/** Up to which block the deferred tables are derived. */
export interface DerivedCoverage {
  /** -1: no block is covered. */
  readonly upTo: number;
  readonly isLate: boolean;
}

/**
 * `X-Indexed-Block` of an answer from deferred tables: the block up to which they are derived, not the newest one. Where none is
 * derived, an answer as of a block names that block, and others none.
 */
export function coverageHeaders(
  coverage: DerivedCoverage | null,
  asOf: AsOf | null,
): Readonly<Record<string, string | null>> {
  if (coverage === null || (coverage.upTo < 0 && asOf !== null)) return {};
  return { 'X-Indexed-Block': coverage.upTo < 0 ? null : String(coverage.upTo) };
}

/** The block before the lowest due one. */
export function coverageOf(
  newest: number,
  { dueFrom, isLate }: { readonly dueFrom: number | null; readonly isLate: boolean },
): DerivedCoverage {
  return { upTo: dueFrom === null ? newest : Math.min(newest, dueFrom - 1), isLate };
}

/** Interval of checks whether the deferred tables cover a block: that takes some seconds after it is indexed. */
export const POLL_MS = 250;

const MAX_AGE_MS = 1000;

/**
 * Caches a value for a second while the state of the read models is unchanged: a block that is counted then stays counted.
 *
 * @param isEnough false: reads the value again
 */
export function keepWhileUnchanged<T>(now: () => number) {
  const kept = new Map<unknown, { readonly state: string; readonly until: number; readonly value: T }>();
  return async (
    { chainState: state }: Pick<ServedBuilds, 'chainState'>,
    key: unknown,
    read: () => Promise<T>,
    isEnough: (value: T) => boolean = () => true,
  ): Promise<T> => {
    const found = kept.get(key);
    if (found?.state === state && now() < found.until && isEnough(found.value)) return found.value;
    const value = await read();
    if (state !== null) kept.set(key, { state, until: now() + MAX_AGE_MS, value });
    return value;
  };
}
