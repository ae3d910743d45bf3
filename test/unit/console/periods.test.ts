import { expect, test } from 'vitest';

import { localTime } from '../../../console/src/format.ts';
import { beginOf, periodText, sumDays } from '../../../console/src/periods.ts';

const day = (time: string, volume: string, transfers: number) => ({
  time: `${time}T00:00:00Z`,
  volume,
  transfers,
});
/** 2026-03-01 is a Sunday, 2026-03-02 a Monday. */
const days = [
  day('2026-02-28', '340282366920938463463374607431768211456', 1),
  day('2026-03-01', '1', 2),
  day('2026-03-02', '10', 4),
  day('2026-03-08', '100', 8),
  day('2026-03-09', '1000', 16),
];

test('sums days to weeks that begin on Monday, without rounding', () => {
  expect(sumDays(days, '1 week')).toEqual([
    { time: '2026-02-23T00:00:00.000Z', volume: '340282366920938463463374607431768211457', transfers: 3 },
    { time: '2026-03-02T00:00:00.000Z', volume: '110', transfers: 12 },
    { time: '2026-03-09T00:00:00.000Z', volume: '1000', transfers: 16 },
  ]);
});

test('sums days to months', () => {
  expect(sumDays(days, '1 month')).toEqual([
    { time: '2026-02-01T00:00:00.000Z', volume: '340282366920938463463374607431768211456', transfers: 1 },
    { time: '2026-03-01T00:00:00.000Z', volume: '1111', transfers: 30 },
  ]);
});

test.each([
  ['1 hour', '2026-03-01T12:00:00.000Z'],
  ['1 day', '2026-03-01T00:00:00.000Z'],
  ['1 week', '2026-02-23T00:00:00.000Z'],
  ['1 month', '2026-03-01T00:00:00.000Z'],
] as const)('finds the begin of %s in UTC', (interval, begin) => {
  expect(beginOf(new Date('2026-03-01T12:34:56.789Z'), interval)).toBe(begin);
  expect(beginOf(new Date(begin), interval)).toBe(begin);
});

test('days, weeks and months have their date in UTC, hours their local time', () => {
  // In any other time zone, one of the two is on another day.
  const [early, late] = [new Date('2026-11-01T00:00:00Z'), new Date('2026-11-29T23:59:59Z')];
  expect([early, late].map((time) => periodText(time, '1 day'))).toEqual(['2026-11-01', '2026-11-29']);
  expect([early, late].map((time) => periodText(time, '1 week'))).toEqual(['2026-11-01', '2026-11-29']);
  expect([early, late].map((time) => periodText(time, '1 month'))).toEqual(['2026-11', '2026-11']);
  expect([periodText(early, '1 hour'), periodText(early)]).toEqual([localTime(early), localTime(early)]);
});
