import { expect, it } from 'vitest';

import { coins } from '../../../../../infra/embedded/prices/coins.ts';
import { priceAt } from '../../../../../infra/embedded/prices/walk.ts';

const START = Date.UTC(2026, 0, 1) / 1000;
const DAY = 86_400;

it('every price changes by its daily volatility and stays near its level for years', () => {
  for (const { token, walk } of coins) {
    if (walk === null) continue;
    const days = Array.from({ length: 1000 }, (_, i) => priceAt('demo', token.index, walk, START - i * DAY));
    const moves = days.slice(1).map((price, i) => Math.abs(Math.log((days[i] ?? price) / price)));
    const mean = moves.reduce((sum, move) => sum + move, 0) / moves.length;
    expect([token.key, mean > walk.daily / 4 && mean < walk.daily * 3]).toEqual([token.key, true]);
    for (const price of days) expect(Math.abs(Math.log(price / walk.level))).toBeLessThan(walk.daily * 40);
    for (let minute = 0; minute < 600; minute += 1) {
      const [one, next] = [minute, minute + 5].map((at) =>
        priceAt('demo', token.index, walk, START + at * 60),
      );
      // Far below the change that the price guard rejects.
      expect(Math.abs(Math.log((one ?? 0) / (next ?? 0)))).toBeLessThan(Math.max(0.001, walk.daily));
    }
  }
});

it('depends on the seed', () => {
  const walk = { level: 10, daily: 0.05, market: 1 };
  expect(priceAt('a', 1, walk, START)).toBe(priceAt('a', 1, walk, START));
  expect(priceAt('a', 1, walk, START)).not.toBe(priceAt('b', 1, walk, START));
  expect(priceAt('a', 1, walk, START)).not.toBe(priceAt('a', 2, walk, START));
});
