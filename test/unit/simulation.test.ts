import { expect, test } from 'vitest';

import { runScenario } from '../simulate/scenario.ts';

/** A quick part of test/long/simulation.test.ts: enough to notice a broken ingester or projection within seconds. */
test.each([1, 2, 3, 4, 5])(
  'tables match the canonical chain after the simulated scenario of seed %i',
  async (seed) => {
    expect((await runScenario(seed)).violations).toEqual([]);
  },
);
