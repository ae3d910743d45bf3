/** What histories are cut into: buckets in UTC, whose weeks begin on Monday. */
export const INTERVALS = ['1 hour', '1 day', '1 week', '1 month'] as const;
export type Interval = (typeof INTERVALS)[number];

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const WEEK = 7 * DAY;
/** The first Monday after 1970-01-01, a Thursday. */
const MONDAY = 4 * DAY;

/** The bucket that a time lies in, counted from one that is the same for all of an interval. */
function bucketAt(interval: Interval, ms: number): number {
  switch (interval) {
    case '1 hour':
      return Math.floor(ms / HOUR);
    case '1 day':
      return Math.floor(ms / DAY);
    case '1 week':
      return Math.floor((ms - MONDAY) / WEEK);
    case '1 month': {
      const date = new Date(ms);
      return date.getUTCFullYear() * 12 + date.getUTCMonth();
    }
  }
}

function startOf(interval: Interval, bucket: number): number {
  switch (interval) {
    case '1 hour':
      return bucket * HOUR;
    case '1 day':
      return bucket * DAY;
    case '1 week':
      return bucket * WEEK + MONDAY;
    case '1 month':
      // Date.UTC takes a year below 100 for one of the 20th century.
      return new Date(0).setUTCFullYear(Math.floor(bucket / 12), bucket - 12 * Math.floor(bucket / 12), 1);
  }
}

/** When the bucket begins that a time lies in; unix milliseconds. */
export function bucketStart(interval: Interval, ms: number): number {
  return startOf(interval, bucketAt(interval, ms));
}

/** When the bucket after it begins; unix milliseconds. */
export function nextBucketStart(interval: Interval, ms: number): number {
  return startOf(interval, bucketAt(interval, ms) + 1);
}

/**
 * The beginnings of buckets from a time to another, both inclusive, ascending: the first `limit` of them; unix
 * milliseconds.
 */
export function boundaries(
  interval: Interval,
  startMs: number,
  endMs: number,
  limit: number = Number.POSITIVE_INFINITY,
): number[] {
  const at = bucketAt(interval, startMs);
  const first = startOf(interval, at) === startMs ? at : at + 1;
  const count = Math.min(limit, bucketAt(interval, endMs) - first + 1);
  return Array.from({ length: Math.max(0, count) }, (_, i) => startOf(interval, first + i));
}
