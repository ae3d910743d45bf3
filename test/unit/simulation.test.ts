import { expect, test } from 'vitest';

import { storm } from '../simulate/storm.ts';

/** A quick part of test/long/simulation.test.ts: enough to notice a broken ingester or projection within seconds. */
test.each([1, 2, 3, 4, 5])(
  'tables match the canonical chain after the simulated storm of seed %i',
  async (seed) => {
    expect((await storm(seed)).breaches).toEqual([]);
  },
);
