import { parseArgs } from 'node:util';

import { addCoverage } from './coverage.ts';
import type { Coverage } from './coverage.ts';
import { runScenario } from './scenario.ts';

const help = `npm run simulate [-- options]

Run the real ingester and projections on virtual time against simulated stores, with reorgs, faults, kills, swaps and
poison messages drawn from a seed, and compare the tables with the canonical chain.

Options
  --seeds N     Number of seeds (200)
  --from S      First seed (1)
  --seed S      Run only this seed
  --trace       Print the trace (with --seed)

The exit code is 1 if a seed fails.
`;

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '200' },
    from: { type: 'string', default: '1' },
    seed: { type: 'string' },
    trace: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

function parseInteger(name: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value >= 0) return value;
  process.stderr.write(`--${name} must be a non-negative integer, not ${text}\n`);
  process.exit(2);
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

if (values.help) {
  process.stdout.write(help);
  process.exit(0);
}
const first = parseInteger('seed', values.seed ?? values.from);
const seeds = values.seed === undefined ? parseInteger('seeds', values.seeds) : 1;
const coverage: Coverage = new Map();
const failed: number[] = [];
const startedAt = performance.now();
let reportedAt = startedAt;
let virtualMs = 0;

for (let done = 0; done < seeds; done += 1) {
  const seed = first + done;
  const report = await runScenario(seed, values.trace ? print : undefined);
  addCoverage(coverage, report.coverage);
  virtualMs += report.virtualMs;
  if (report.violations.length > 0) {
    failed.push(seed);
    print(`seed ${seed} failed; reproduce: npm run simulate -- --seed ${seed} --trace`);
    for (const violation of report.violations) print(`  ${violation}`);
  }
  if (performance.now() - reportedAt > 5000 || done + 1 === seeds) {
    reportedAt = performance.now();
    const rate = ((done + 1) / (reportedAt - startedAt)) * 60_000;
    const left = ((seeds - done - 1) / rate) * 60;
    print(
      `${done + 1} of ${seeds} seeds, ${failed.length} failed, ${Math.round(rate)} a minute, ${Math.round(left)} s left`,
    );
  }
}

print(`\nCoverage, in ${(virtualMs / 3_600_000).toFixed(1)} hours of virtual time:`);
for (const [kind, times] of [...coverage].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
  print(`  ${String(times).padStart(9)}  ${kind}`);
}
if (failed.length > 0) print(`\nFailing seeds: ${failed.join(' ')}`);
process.exitCode = failed.length > 0 ? 1 : 0;
