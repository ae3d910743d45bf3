import { expect, test } from 'vitest';

import { timeRange, valueRange } from '../../../console/src/plot-ranges.ts';

const pointsAt = (...times: number[]) => times.map((time) => ({ time, value: 1, text: '1' }));
/** What uPlot asks with for a single point: 86,400,000 s from it. */
const aroundOne = (time: number): [number, number] => [time, time + 86_400_000];

test('a single point is shown within the span of the other plots', () => {
  expect(timeRange(pointsAt(4000), aroundOne(4000), 'candles', [1000, 5000])).toEqual([800, 5200]);
});

test('a single point without a span has half an hour on each side', () => {
  expect(timeRange(pointsAt(4000), aroundOne(4000), 'line')).toEqual([2200, 5800]);
});

test('a plot with a span shows all of it until the user zooms in', () => {
  const points = pointsAt(2000, 3000, 4000);
  expect(timeRange(points, [2000, 4000], 'bars', [1000, 5000])).toEqual([800, 5200]);
  expect(timeRange(points, [2500, 3500], 'bars', [1000, 5000])).toEqual([2500, 3500]);
});

test('bars and candles have half a step at both ends, lines none', () => {
  const points = pointsAt(2000, 3000, 4000);
  expect(timeRange(points, [2000, 4000], 'bars')).toEqual([1500, 4500]);
  expect(timeRange(points, [2000, 4000], 'candles')).toEqual([1500, 4500]);
  expect(timeRange(points, [2000, 4000], 'line')).toEqual([2000, 4000]);
});

test('bars stand on zero, other plots fill the height with some room', () => {
  expect(valueRange(100, 200, 'bars')).toEqual([0, 212]);
  expect(valueRange(100, 200, 'line')).toEqual([94, 206]);
  expect(valueRange(100, 100, 'line')).toEqual([94, 106]);
  expect(valueRange(0, 0, 'steps')).toEqual([0, 1]);
});
