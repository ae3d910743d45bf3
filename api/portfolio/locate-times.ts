import type { Point } from '../../projections/balances-at.ts';
import { newestHeightsAt, wholeUpTo } from '../../projections/indexed-blocks/queries.ts';
import type { BalanceDeps } from '../balances/current.ts';

/** Where a time lies among the indexed blocks; `unknown`: in a gap of the index. */
export type Location = Point | 'before the first block' | 'unknown';

export interface LocatedTimes {
  /** The newest indexed height. */
  readonly head: number;
  /** The first height of the run that ends with it. */
  readonly newestFrom: number;
  /** One per time, in their order. */
  readonly locations: readonly Location[];
}

const MAX_SECONDS = 4_294_967_295;

/** Where these times lie (unix milliseconds, ascending; null: now); null before the first indexed block. */
export async function locateTimes(
  { clickhouse, served, coverage }: Pick<BalanceDeps, 'clickhouse' | 'served' | 'coverage'>,
  times: readonly number[] | null,
): Promise<LocatedTimes | null> {
  const seconds = (times ?? []).map((ms) => Math.min(Math.max(Math.floor(ms / 1000), -1), MAX_SECONDS));
  const [cached, heights] = await Promise.all([
    coverage.read(clickhouse, served),
    newestHeightsAt(clickhouse, served, seconds),
  ]);
  const isBehind = cached !== null && heights.some((height) => height !== null && height > cached.run.end);
  const covered = isBehind ? await coverage.read(clickhouse, served, true) : cached;
  if (covered === null) return null;
  const { run: newest } = covered;
  const ofHead = { head: newest.end, newestFrom: newest.start };
  if (times === null) return { ...ofHead, locations: [{ height: newest.end, run: newest }] };

  const isBelow = newest.start > 0 && heights.some((height) => height === null || height < newest.start);
  const whole = newest.start === 0 ? newest.end : isBelow ? await wholeUpTo(clickhouse, served) : null;
  const locations = heights.map((height): Location => {
    if (height === null) return whole === null ? 'unknown' : 'before the first block';
    // A height above the head was reverted between the two reads.
    if (height >= newest.start) return { height: Math.min(height, newest.end), run: newest };
    // Blocks of the gap above `whole` may be older than the time.
    return whole !== null && height < whole ? { height, run: { start: 0, end: whole } } : 'unknown';
  });
  return { ...ofHead, locations };
}
