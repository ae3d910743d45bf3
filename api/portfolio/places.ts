import { newestHeightsAt, wholeUpTo } from '../../projections/indexed-blocks/queries.ts';
import type { Point } from '../balances/account.ts';
import type { BalanceDeps } from '../balances/current.ts';

/** Where a time lies among the indexed blocks; `unknown`: blocks may be missing there. */
export type Place = Point | 'before the first block' | 'unknown';

export interface Places {
  /** The newest indexed height. */
  readonly head: number;
  /** The first height of the run that ends with it. */
  readonly newestFrom: number;
  /** One a time, in their order. */
  readonly places: readonly Place[];
}

const MOST_SECONDS = 4_294_967_295;

/** Where these times lie (unix milliseconds, ascending; null: now); null before anything is indexed. */
export async function placesOf(
  { clickhouse, served, coverage }: Pick<BalanceDeps, 'clickhouse' | 'served' | 'coverage'>,
  times: readonly number[] | null,
): Promise<Places | null> {
  const seconds = (times ?? []).map((ms) => Math.min(Math.max(Math.floor(ms / 1000), -1), MOST_SECONDS));
  const [kept, heights] = await Promise.all([
    coverage.read(clickhouse, served),
    newestHeightsAt(clickhouse, served, seconds),
  ]);
  const isBehind = kept !== null && heights.some((height) => height !== null && height > kept.run.end);
  const covered = isBehind ? await coverage.read(clickhouse, served, true) : kept;
  if (covered === null) return null;
  const { run: newest } = covered;
  const of = { head: newest.end, newestFrom: newest.start };
  if (times === null) return { ...of, places: [{ height: newest.end, run: newest }] };

  const isBelow = newest.start > 0 && heights.some((height) => height === null || height < newest.start);
  const whole = newest.start === 0 ? newest.end : isBelow ? await wholeUpTo(clickhouse, served) : null;
  const places = heights.map((height): Place => {
    if (height === null) return whole === null ? 'unknown' : 'before the first block';
    // One above the head was taken away meanwhile.
    if (height >= newest.start) return { height: Math.min(height, newest.end), run: newest };
    // What comes after the last block before a gap may have come before the time.
    return whole !== null && height < whole ? { height, run: { start: 0, end: whole } } : 'unknown';
  });
  return { ...of, places };
}
