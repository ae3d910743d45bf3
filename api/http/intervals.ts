/** Bucket sizes of histories; in UTC, weeks begin on Monday. */
export const INTERVALS = ['1 hour', '1 day', '1 week', '1 month'] as const;
export type Interval = (typeof INTERVALS)[number];

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const WEEK = 7 * DAY;
/** The first Monday after 1970-01-01, a Thursday. */
const MONDAY = 4 * DAY;

/** The number of the bucket that holds a time. */
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
      // Date.UTC maps years below 100 to the 20th century.
      return new Date(0).setUTCFullYear(Math.floor(bucket / 12), bucket - 12 * Math.floor(bucket / 12), 1);
  }
}

/** Start of the bucket that holds a time; unix milliseconds. */
export function bucketStart(interval: Interval, ms: number): number {
  return startOf(interval, bucketAt(interval, ms));
}

/** Start of the following bucket; unix milliseconds. */
export function nextBucketStart(interval: Interval, ms: number): number {
  return startOf(interval, bucketAt(interval, ms) + 1);
}

/**
 * The first `limit` bucket starts between two times, both inclusive, ascending; unix milliseconds.
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
