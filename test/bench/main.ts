import { mkdirSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';

import type { BenchCase, CaseReport, Scale } from './case.ts';
import { abuse } from './cases/abuse.ts';
import { analytics } from './cases/analytics.ts';
import { backfill } from './cases/backfill.ts';
import { balances } from './cases/balances.ts';
import { commands } from './cases/commands.ts';
import { domains } from './cases/domains.ts';
import { exports } from './cases/exports.ts';
import { headLag } from './cases/head-lag.ts';
import { idle } from './cases/idle.ts';
import { limits } from './cases/limits.ts';
import { machineLimits } from './cases/machine.ts';
import { nftMetadata } from './cases/nft-metadata.ts';
import { nfts } from './cases/nft.ts';
import { pages } from './cases/pages.ts';
import { pipeline } from './cases/pipeline.ts';
import { portfolios } from './cases/portfolio.ts';
import { prices } from './cases/prices.ts';
import { rebuild } from './cases/rebuild.ts';
import { start } from './cases/start.ts';
import { streams } from './cases/streams.ts';
import { trace } from './cases/trace.ts';
import { webhooks } from './cases/webhooks.ts';
import { quick } from './quick/quick.ts';
import { summarizeProfiles } from './profile.ts';
import { describeMachine, difference, isComplete, renderMachine, renderReport, verdict } from './report.ts';
import { createWorld } from './world.ts';
import type { World } from './world.ts';

const cases: readonly BenchCase[] = [
  backfill,
  rebuild,
  pages,
  headLag,
  pipeline,
  start,
  idle,
  commands,
  limits,
  trace,
  balances,
  portfolios,
  analytics,
  prices,
  streams,
  exports,
  webhooks,
  nfts,
  nftMetadata,
  domains,
  abuse,
  machineLimits,
];

const help = `npm run bench [-- case… options]

Measures the whole service on this machine: simulated node, Kafka, ClickHouse, PostgreSQL and the service's own
processes. Without a case all cases run, one after the other, each on a new service in its own folder.

Cases
${cases.map(({ name, summary }) => `  ${name.padEnd(10)} ${summary}`).join('\n')}

Options
  --transfers N   transfers of the chain in backfill and rebuild (1,000,000)
  --brokers N     Kafka brokers in backfill: 1, or 3 with three replicas, of which two acknowledge (1)
  --rows N        transfers in the tables of pages (5,000,000)
  --hot-legs N    ledger legs of the largest account in pages, balances and portfolio (20,000,000)
  --per-block N   transfers per block (125)
  --samples N     number of samples, instead of the default of each case
  --profile DIR   save CPU profiles of the service's Node processes in DIR, and show the most expensive functions
  --node-options=TEXT   NODE_OPTIONS of the service's processes, to compare settings of Node
  --set=NAME=VALUE      a setting of the service, as --set=VERIFY_EVENTS=all; may be repeated
  --quick         compare the CPU time of the most important parts with reference work, in a minute or two; fail on a large loss
                  against test/bench/quick/ratios.json
  --record        with --quick: measure three times and write that file
  --json          print one JSON document instead of tables

A figure is "missed", "reached" or at its "aim". The exit code is 1 if a completeness difference is not 0 or a case fails.
It does not depend on times, which vary with the load of the machine (shown in the first line).
`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    transfers: { type: 'string', default: '1000000' },
    brokers: { type: 'string', default: '1' },
    rows: { type: 'string', default: '5000000' },
    'hot-legs': { type: 'string', default: '20000000' },
    'per-block': { type: 'string', default: '125' },
    samples: { type: 'string' },
    profile: { type: 'string' },
    'node-options': { type: 'string', default: '' },
    set: { type: 'string', multiple: true, default: [] },
    quick: { type: 'boolean', default: false },
    record: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

function count(name: string, text: string): number {
  const value = Number(text.replaceAll(/[_,]/g, ''));
  if (Number.isSafeInteger(value) && value > 0) return value;
  process.stderr.write(`--${name} must be a whole number above 0, not ${text}\n`);
  process.exit(2);
}

function brokerCount(text: string): Scale['brokers'] {
  if (text === '1') return 1;
  if (text === '3') return 3;
  process.stderr.write(`--brokers must be 1 or 3, not ${text}\n`);
  process.exit(2);
}

function settingOf(text: string): [string, string] {
  const [, name, value] = /^([A-Z_0-9]+)=(.*)$/s.exec(text) ?? [];
  if (name !== undefined && value !== undefined) return [name, value];
  process.stderr.write(`--set must be NAME=VALUE, not ${text}\n`);
  process.exit(2);
}
const settings = Object.fromEntries(values.set.map(settingOf));

const unknown = positionals.filter((name) => cases.every((one) => one.name !== name));
if (values.help || unknown.length > 0) {
  if (unknown.length > 0) process.stderr.write(`Unknown case: ${unknown.join(', ')}\n\n`);
  process.stdout.write(help);
  process.exit(unknown.length > 0 ? 2 : 0);
}
const scale: Scale = {
  transfers: count('transfers', values.transfers),
  brokers: brokerCount(values.brokers),
  rows: count('rows', values.rows),
  hotLegs: count('hot-legs', values['hot-legs']),
  perBlock: count('per-block', values['per-block']),
  samples: values.samples === undefined ? null : count('samples', values.samples),
};
const named = positionals.length === 0 ? cases : cases.filter(({ name }) => positionals.includes(name));
const chosen = values.quick ? [quick(values.record)] : named;
const profileDir = values.profile === undefined ? null : resolve(values.profile);
if (profileDir !== null) mkdirSync(profileDir, { recursive: true });

/** Results go to stdout, progress to stderr. */
const say = (line: string): void => void process.stderr.write(`${line}\n`);
const print = (text: string): void => void (values.json || process.stdout.write(`${text}\n`));

let world: World | null = null;
let interrupted = false;
const interrupt = (): void => {
  if (interrupted) return;
  interrupted = true;
  say('Stopping …');
  void (world?.close() ?? Promise.resolve()).finally(() => process.exit(130));
};
process.on('SIGINT', interrupt).on('SIGTERM', interrupt);

async function runCase(one: BenchCase): Promise<CaseReport> {
  const folder = profileDir === null ? null : resolve(profileDir, one.name);
  world = createWorld({
    say: (line) => say(`  ${one.name}: ${line}`),
    profileDir: folder,
    nodeOptions: values['node-options'],
    settings,
  });
  let report: CaseReport;
  try {
    report = await one.run(world, scale);
  } finally {
    // After an interrupt the world is closed already and the process is about to exit.
    await (interrupted ? new Promise<never>(() => {}) : world.close());
  }
  if (folder === null) return report;
  return { ...report, tables: [...(report.tables ?? []), ...summarizeProfiles(folder, world.names)] };
}

const machine = describeMachine();
print(renderMachine(machine));
const reports: Record<string, object> = {};
let isGood = true;
for (const one of chosen) {
  print(`\n${one.name}: ${one.summary}\n`);
  try {
    const report = await runCase(one);
    isGood &&= isComplete(report);
    print(renderReport(report));
    reports[one.name] = {
      ...report,
      figures: report.figures.map((figure) => ({ ...figure, verdict: verdict(figure) })),
      completeness: report.completeness.map((each) => ({ ...each, difference: difference(each) })),
    };
  } catch (error) {
    isGood = false;
    const message = error instanceof Error ? (error.stack ?? error.message) : String(error);
    say(`${one.name} failed: ${message}`);
    reports[one.name] = { error: message };
  }
}
if (values.json) process.stdout.write(`${JSON.stringify({ machine, scale, cases: reports }, null, 2)}\n`);
process.exit(isGood ? 0 : 1);
