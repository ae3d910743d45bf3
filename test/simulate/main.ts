import { parseArgs } from 'node:util';

import { addCoverage } from './coverage.ts';
import type { Coverage } from './coverage.ts';
import { storm } from './storm.ts';

const help = `npm run simulate [-- options]

Runs the real ingester and the real projections on virtual time against simulated stores, with forks, faults, deaths,
swaps and poison drawn from a seed, and compares the tables with the chain in force.

Options
  --seeds N     how many seeds (200)
  --from S      the first of them (1)
  --seed S      only this one
  --trace       print everything that happens (with --seed)

The exit code is 1 when a seed fails.
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

function whole(name: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value >= 0) return value;
  process.stderr.write(`--${name} wants a whole number, not ${text}\n`);
  process.exit(2);
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

if (values.help) {
  process.stdout.write(help);
  process.exit(0);
}
const first = whole('seed', values.seed ?? values.from);
const seeds = values.seed === undefined ? whole('seeds', values.seeds) : 1;
const coverage: Coverage = new Map();
const failed: number[] = [];
const began = performance.now();
let said = began;
let virtualMs = 0;

for (let done = 0; done < seeds; done += 1) {
  const seed = first + done;
  const report = await storm(seed, values.trace ? say : undefined);
  addCoverage(coverage, report.coverage);
  virtualMs += report.virtualMs;
  if (report.breaches.length > 0) {
    failed.push(seed);
    say(`seed ${seed} fails; alone: npm run simulate -- --seed ${seed} --trace`);
    for (const breach of report.breaches) say(`  ${breach}`);
  }
  if (performance.now() - said > 5000 || done + 1 === seeds) {
    said = performance.now();
    const rate = ((done + 1) / (said - began)) * 60_000;
    const left = ((seeds - done - 1) / rate) * 60;
    say(
      `${done + 1} of ${seeds} seeds, ${failed.length} failed, ${Math.round(rate)} a minute, ${Math.round(left)} s left`,
    );
  }
}

say(`\nWhat they met, in ${(virtualMs / 3_600_000).toFixed(1)} hours of virtual time:`);
for (const [kind, times] of [...coverage].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
  say(`  ${String(times).padStart(9)}  ${kind}`);
}
if (failed.length > 0) say(`\nFailing seeds: ${failed.join(' ')}`);
process.exitCode = failed.length > 0 ? 1 : 0;
