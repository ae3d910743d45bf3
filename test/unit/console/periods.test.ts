import { expect, test } from 'vitest';

import { sumDays } from '../../../console/src/periods.ts';

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
