import { localTime, utcTime } from './format.ts';

export type Interval = '1 hour' | '1 day' | '1 week' | '1 month';

/** Times up to now to choose from, by their days. */
export const SPANS = [
  ['1', 'Day'],
  ['7', 'Week'],
  ['30', 'Month'],
] as const;
export type SpanDays = (typeof SPANS)[number][0];

/** The transfers of a token in one period. */
export interface Period {
  /** ISO 8601, of its begin in UTC. */
  readonly time: string;
  /** In the smallest unit. */
  readonly volume: string;
  readonly transfers: number;
}

/** The local time at which an hour or an instant begins; days, weeks and months are those of UTC, and have a date. */
export function periodText(begin: Date, interval?: Interval): string {
  if (interval === undefined || interval === '1 hour') return localTime(begin);
  return utcTime(begin).slice(0, interval === '1 month' ? 7 : 10);
}

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
/** Days from the Monday of a week to its other days, by the number of `getUTCDay`. */
const SINCE_MONDAY = [6, 0, 1, 2, 3, 4, 5] as const;

/** Sums days to the weeks (from Monday) or months of UTC that hold them, as the history of prices has them. */
export function sumDays(days: readonly Period[], interval: '1 week' | '1 month'): Period[] {
  const sums = new Map<string, Period>();
  for (const { time, volume, transfers } of days) {
    const begin = beginOf(new Date(time), interval);
    const sum = sums.get(begin) ?? { time: begin, volume: '0', transfers: 0 };
    sums.set(begin, {
      time: begin,
      volume: String(BigInt(sum.volume) + BigInt(volume)),
      transfers: sum.transfers + transfers,
    });
  }
  return [...sums.values()];
}

/** When the hour, day, week or month of UTC begins that holds a time; ISO 8601. */
export function beginOf(time: Date, interval: Interval): string {
  const ms = time.getTime();
  const day = ms - (ms % DAY_MS);
  const begins: Readonly<Record<Interval, number>> = {
    '1 hour': ms - (ms % HOUR_MS),
    '1 day': day,
    '1 week': day - (SINCE_MONDAY[time.getUTCDay()] ?? 0) * DAY_MS,
    '1 month': Date.UTC(time.getUTCFullYear(), time.getUTCMonth()),
  };
  return new Date(begins[interval]).toISOString();
}
