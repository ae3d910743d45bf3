import { expect, test } from 'vitest';

import { addCoverage } from '../simulate/coverage.ts';
import type { Coverage } from '../simulate/coverage.ts';
import { regressionSeeds } from '../simulate/regression-seeds.ts';
import { runScenario } from '../simulate/scenario.ts';

/*
 * The real ingester and projections on virtual time, with reorgs, lagging nodes, lost answers, kills, frozen processes,
 * rebalances, swaps and poison messages drawn from a seed. After recovery every table must match the canonical chain.
 * `npm run simulate` runs more seeds, or one seed with its trace.
 */
const seeds = new Set([
  ...Array.from({ length: 60 }, (_, index) => index + 1),
  ...regressionSeeds.map(({ seed }) => seed),
]);
const coverage: Coverage = new Map();

test('tables match the canonical chain after every scenario', async () => {
  const failed: Record<string, readonly string[]> = {};
  for (const seed of seeds) {
    const report = await runScenario(seed);
    addCoverage(coverage, report.coverage);
    if (report.violations.length > 0) failed[`npm run simulate -- --seed ${seed}`] = report.violations;
  }
  expect(failed).toEqual({});
});

test('scenarios cover every kind of fault', () => {
  const kinds = [
    'PostgreSQL fail-over',
    'answer of a stale node',
    'return to an earlier fork',
    'build swapped',
    'checkpoint move refused',
    'block refetched from the node',
    'incomplete block',
    'clickhouse: answer lost',
    'clickhouse: applied late',
    'clickhouse: call failed',
    'clickhouse: parts merged',
    'clickhouse: slow',
    'contract reclassified',
    'lock lost by a frozen process',
    'log: answer lost',
    'log: applied late',
    'log: call failed',
    'log: calls batched in one request',
    'message retried by an operator',
    'message skipped by an operator',
    'node: answer lost',
    'partition halted',
    'partitions reassigned',
    'process killed',
    'process paused',
    'process stopped gracefully',
    'rebalance among several',
    'reorg deeper than 20',
    'reorg of one block',
    'write of a killed process',
    'session expired',
    'state: answer lost',
    'state: applied late',
    'store: answer lost',
    'indexed totals checked',
    'transaction of a fork included again',
    'two ingesters',
    'two projectors',
    'zombie write',
  ];
  expect(kinds.filter((kind) => !coverage.has(kind))).toEqual([]);
});

test('a seed always produces the same scenario', async () => {
  for (const seed of [1, 2, 3]) {
    const [once, again] = [await runScenario(seed), await runScenario(seed)];
    expect(again.hash).toBe(once.hash);
  }
  expect((await runScenario(1)).hash).not.toBe((await runScenario(2)).hash);
});
