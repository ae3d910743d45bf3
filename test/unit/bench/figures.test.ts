import { describe, expect, test } from 'vitest';

import { apart } from '../../bench/completeness.ts';
import { percentile, timed } from '../../bench/measure.ts';
import { isComplete, verdict } from '../../bench/report.ts';

describe('bench figures', () => {
  test('percentile takes the nearest rank, in any order of the samples', () => {
    const hundred = Array.from({ length: 100 }, (_, index) => 100 - index);
    expect([0, 0.5, 0.99, 1].map((share) => percentile(hundred, share))).toEqual([1, 50, 99, 100]);
    expect(percentile([7, 3], 0.5)).toBe(3);
    expect(percentile([], 0.5)).toBeNaN();
  });

  test('verdict supports lower and upper bounds', () => {
    const rate = { name: '', unit: '', want: { better: 'higher', least: 10, aim: 20 } } as const;
    expect([9, 10, 20].map((value) => verdict({ ...rate, value }))).toEqual(['missed', 'reached', 'aim']);
    const time = { name: '', unit: '', want: { better: 'lower', least: 20, aim: 10 } } as const;
    expect([21, 20, 10].map((value) => verdict({ ...time, value }))).toEqual(['missed', 'reached', 'aim']);
    expect(verdict({ name: '', unit: '', value: Number.NaN, want: time.want })).toBe('missed');
  });

  test('difference counts rows that differ although the totals are equal', () => {
    expect(apart('', { a: 2, b: 3 }, [{ subject: 'a', n: 2 }])).toMatchObject({ expected: 0, found: 3 });
    const swapped = [
      { subject: 'a', n: 3 },
      { subject: 'c', n: 2 },
    ];
    expect(apart('', { a: 2, b: 3 }, swapped).found).toBe(6);
    expect(isComplete({ figures: [], completeness: [apart('', { a: 1 }, [{ subject: 'a', n: 1 }])] })).toBe(
      true,
    );
    expect(isComplete({ figures: [], completeness: [{ what: '', expected: 3, found: 2 }] })).toBe(false);
  });

  test('concurrent work handles every index once, within the limit', async () => {
    const seen: number[] = [];
    let running = 0;
    let most = 0;
    const { samples } = await timed(20, 4, async (index) => {
      most = Math.max(most, ++running);
      await new Promise((resolve) => setTimeout(resolve, 1));
      seen.push(index);
      running -= 1;
    });
    expect(seen.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, index) => index));
    expect(samples).toHaveLength(20);
    expect(most).toBe(4);
  });
});
