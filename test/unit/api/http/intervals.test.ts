import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { INTERVALS, boundaries, bucketStart, nextBucketStart } from '../../../../api/http/intervals.ts';
import type { Interval } from '../../../../api/http/intervals.ts';

const HOUR = 3_600_000;
const iso = (ms: number): string => new Date(ms).toISOString().replace('.000Z', 'Z');
const at = (text: string): number => Date.parse(text);

/** Whether a bucket begins at a time, as its date reads: nothing of this is worked out from the interval's length. */
const begins = (interval: Interval, ms: number): boolean => {
  const date = new Date(ms);
  const [hour, day] = [iso(ms).slice(11), iso(ms).slice(8, 10)];
  const isWholeHour = /^\d\d:00:00Z$/.test(hour);
  const isMidnight = hour === '00:00:00Z';
  return {
    '1 hour': isWholeHour,
    '1 day': isMidnight,
    '1 week': isMidnight && date.toUTCString().startsWith('Mon'),
    '1 month': isMidnight && day === '01',
  }[interval];
};

const interval = fc.constantFrom(...INTERVALS);
/** Every whole hour within some months is looked at, so that no boundary can hide. */
const span = fc.record({
  start: fc.integer({ min: at('1960-01-01'), max: at('2105-01-01') }),
  length: fc.integer({ min: 0, max: 100 * 24 * HOUR }),
});

describe('boundaries', () => {
  it('are all bucket starts in a span, in order', () => {
    fc.assert(
      fc.property(interval, span, (every, { start, length }) => {
        const end = start + length;
        const expected: number[] = [];
        for (let ms = Math.ceil(start / HOUR) * HOUR + 0; ms <= end; ms += HOUR) {
          if (begins(every, ms)) expected.push(ms);
        }
        expect(boundaries(every, start, end)).toEqual(expected);
        expect(boundaries(every, start, end, 3)).toEqual(expected.slice(0, 3));
        expect(expected).not.toContain(nextBucketStart(every, end));
      }),
      { numRuns: 200 },
    );
  });

  it('start the bucket of every time up to the next one', () => {
    fc.assert(
      fc.property(interval, span, (every, { start, length }) => {
        const bucket = bucketStart(every, start);
        expect(bucket).toBeLessThanOrEqual(start);
        expect(begins(every, bucket)).toBe(true);
        expect(boundaries(every, bucket + 1, start)).toEqual([]);
        for (const boundary of boundaries(every, start, start + length)) {
          expect(bucketStart(every, boundary)).toBe(boundary);
          expect(bucketStart(every, boundary - 1)).toBeLessThan(boundary);
        }
      }),
    );
  });

  it.each<[Interval, string, string, string[]]>([
    ['1 day', '2024-02-28T00:00:00Z', '2024-03-01T00:00:00Z', ['2024-02-28', '2024-02-29', '2024-03-01']],
    ['1 day', '2023-02-28T00:00:00.001Z', '2023-03-01T12:00:00Z', ['2023-03-01']],
    ['1 week', '2024-02-26T00:00:00Z', '2024-03-11T00:00:00Z', ['2024-02-26', '2024-03-04', '2024-03-11']],
    ['1 week', '2023-12-31T23:59:59Z', '2024-01-07T23:59:59Z', ['2024-01-01']],
    [
      '1 month',
      '2023-11-30T00:00:00Z',
      '2024-03-01T00:00:00Z',
      ['2023-12-01', '2024-01-01', '2024-02-01', '2024-03-01'],
    ],
    ['1 month', '0001-01-01T00:00:00Z', '0001-03-31T00:00:00Z', ['0001-01-01', '0001-02-01', '0001-03-01']],
    ['1 month', '2024-01-01T00:00:00.001Z', '2024-01-31T23:59:59Z', []],
  ])('of each %s from %s to %s', (every, start, end, expected) => {
    expect(boundaries(every, at(start), at(end)).map(iso)).toEqual(expected.map((day) => `${day}T00:00:00Z`));
  });

  it('are limited without generating all, and empty for a reversed span', () => {
    expect(boundaries('1 hour', at('0001-01-01'), at('9999-12-31'), 2).map(iso)).toEqual([
      '0001-01-01T00:00:00Z',
      '0001-01-01T01:00:00Z',
    ]);
    expect(boundaries('1 hour', at('2024-01-02'), at('2024-01-01'))).toEqual([]);
  });
});
