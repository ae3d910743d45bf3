import { expect, test } from 'vitest';

import { latencyPoints, percentText, ratePoints, successRate } from '../../../console/src/delivery-stats.ts';

const period = (rest: Record<string, unknown>) => ({
  time: '2026-03-01T10:00:00.000Z',
  success: 0,
  pending: 0,
  failed: 0,
  dead: 0,
  median_ms: null,
  p95_ms: null,
  ...rest,
});
const TIME = Date.parse('2026-03-01T10:00:00.000Z') / 1000;

test('the success rate counts failed and dead deliveries, and not those that are pending', () => {
  const periods = [period({ success: 5, failed: 1 }), period({ success: 1, dead: 1, pending: 9 })];
  expect(successRate(periods)).toBe(75);
  expect(ratePoints(periods)).toEqual([
    { time: TIME, value: 500 / 6, text: '83.3 %: 5 of 6' },
    { time: TIME, value: 50, text: '50.0 %: 1 of 2' },
  ]);
});

test('a period without an attempt is no point', () => {
  expect(successRate([period({ pending: 3 })])).toBeNull();
  expect(ratePoints([period({ pending: 3 })])).toEqual([]);
  expect(latencyPoints([period({ pending: 3 })])).toEqual([]);
});

test('only a rate without a failure is shown as 100 %', () => {
  expect([99.99, 100, 0, 33.35].map(percentText)).toEqual(['99.9 %', '100.0 %', '0.0 %', '33.3 %']);
});

test('the latency is the 95th percentile, with the median in words', () => {
  expect(latencyPoints([period({ success: 2, median_ms: 12, p95_ms: 1340 })])).toEqual([
    { time: TIME, value: 1340, text: '1,340 ms, median 12 ms' },
  ]);
});
