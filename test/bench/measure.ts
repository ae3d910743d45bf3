import type { Figure } from './case.ts';

/** Percentile by nearest rank. */
export function percentile(samples: readonly number[], share: number): number {
  if (samples.length === 0) return Number.NaN;
  const sorted = samples.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN;
}

export function median(samples: readonly number[]): number {
  return percentile(samples, 0.5);
}

/** p50 and p99 of samples in milliseconds. */
export function latency(
  name: string,
  samples: readonly number[],
  want: { median?: Figure['want']; tail?: Figure['want'] } = {},
): Figure[] {
  const figure = (suffix: string, share: number, wish: Figure['want']): Figure => ({
    name: `${name} ${suffix}`,
    value: percentile(samples, share),
    unit: 'ms',
    ...(wish === undefined ? {} : { want: wish }),
  });
  return [figure('p50', 0.5, want.median), figure('p99', 0.99, want.tail)];
}

/** Runs `work` for 0 to `count - 1` with limited concurrency; returns the milliseconds of each. */
export async function timed(
  count: number,
  sideBySide: number,
  work: (index: number) => Promise<void>,
): Promise<{ samples: number[]; seconds: number }> {
  const samples: number[] = [];
  let next = 0;
  const began = performance.now();
  const caller = async (): Promise<void> => {
    while (next < count) {
      const index = next++;
      const from = performance.now();
      await work(index);
      samples.push(performance.now() - from);
    }
  };
  await Promise.all(Array.from({ length: sideBySide }, caller));
  return { samples, seconds: (performance.now() - began) / 1000 };
}

/** Deterministic random numbers from 0 to 1 (mulberry32), so that two runs send the same requests. */
export function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
