import { expect, test } from 'vitest';

import { addCoverage } from '../simulate/coverage.ts';
import type { Coverage } from '../simulate/coverage.ts';
import { keptSeeds } from '../simulate/kept-seeds.ts';
import { storm } from '../simulate/storm.ts';

/*
 * The real ingester and projections on virtual time, through forks, lagging nodes, lost answers, kills, frozen processes,
 * rebalances, swaps and poison messages drawn from a seed. Once the faults end, every table must match the canonical chain.
 * `npm run simulate` runs more seeds, or one seed with a trace.
 */
const seeds = new Set([
  ...Array.from({ length: 60 }, (_, index) => index + 1),
  ...keptSeeds.map(({ seed }) => seed),
]);
const coverage: Coverage = new Map();

test('tables match the canonical chain after every storm', { timeout: 900_000 }, async () => {
  const failed: Record<string, readonly string[]> = {};
  for (const seed of seeds) {
    const report = await storm(seed);
    addCoverage(coverage, report.coverage);
    if (report.breaches.length > 0) failed[`npm run simulate -- --seed ${seed}`] = report.breaches;
  }
  expect(failed).toEqual({});
});

test('the storms cover every kind of fault', () => {
  const kinds = [
    'answer of another node',
    'back to a fork that was left',
    'build swapped',
    'checkpoint move refused',
    'block read again from the node',
    'block that came short',
    'clickhouse: answer lost',
    'clickhouse: applied late',
    'clickhouse: call failed',
    'clickhouse: parts merged',
    'clickhouse: slow',
    'contract reclassified',
    'hold lost by a frozen process',
    'log: answer lost',
    'log: applied late',
    'log: call failed',
    'log: calls in one request',
    'message read again for an operator',
    'message skipped by an operator',
    'node: answer lost',
    'partition halted',
    'partitions moved to another',
    'process killed',
    'process paused',
    'process stopped gently',
    'rebalance among several',
    'reorg deeper than 20',
    'reorg of one block',
    'sent by the dead',
    'session ran out',
    'state: answer lost',
    'state: applied late',
    'store: answer lost',
    'totals looked at',
    'transaction of a fork again',
    'two ingesters',
    'two projectors',
    'zombie write',
  ];
  expect(kinds.filter((kind) => !coverage.has(kind))).toEqual([]);
});

test('a seed gives the same storm every time', { timeout: 300_000 }, async () => {
  for (const seed of [1, 2, 3]) {
    const [once, again] = [await storm(seed), await storm(seed)];
    expect(again.hash).toBe(once.hash);
  }
  expect((await storm(1)).hash).not.toBe((await storm(2)).hash);
});
