import { Option } from 'commander';
import type { Command } from 'commander';

import { dropBuild, listBuilds } from '../../../projections/engine/builds.ts';
import type { StoredBuild } from '../../../projections/engine/builds.ts';
import type { Projection } from '../../../projections/define.ts';
import { projections } from '../../../projections/index.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import type { RebuildProgress, RebuildReport } from '../../../projections/engine/rebuild/rebuild.ts';
import { rebuildLines } from '../../../projections/engine/rebuild/report-lines.ts';
import { AppError } from '../../../schemas/errors.ts';
import { systemClock } from '../../clock.ts';
import type { Config } from '../../config.ts';
import { sleep } from '../../lifecycle.ts';
import type { Logger } from '../../log.ts';
import { createMetrics } from '../../metrics.ts';
import { commandConfig } from '../command-config.ts';
import { withStores } from '../connect.ts';
import type { Stores } from '../connect.ts';
import { recordedRebuild } from '../operator/recorded-rebuild.ts';
import { sizeText, tableSizes } from '../operator/table-sizes.ts';
import { showProgress, withInterrupt } from './progress.ts';

/** Longer than any request that read the name of a build before a swap. */
const READERS_GONE_MS = 20_000;

interface RebuildOptions {
  readonly all: boolean;
  readonly swap: boolean;
  readonly drop: boolean;
  readonly json: boolean;
  readonly requestedBy: string;
}

/** `tds rebuild` and `tds builds`: rebuilds read models from the log, and manages the builds. */
export function rebuildCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('rebuild')
    .description(
      'rebuild read models from the log, without the node, compare them with the served ones, and swap; ' +
        'a killed rebuild resumes when run again',
    )
    .argument('[name...]', `one or more of ${projections.map(({ name }) => name).join(', ')}`)
    .option('--all', 'rebuild all projections, one after the other', false)
    .option('--no-swap', 'build and compare only; the next run resumes there')
    .option('--drop', 'drop the previous build once no reader uses it', false)
    .option('--json', 'print the result as JSON', false)
    // Set by the process that runs the rebuild of an admin.
    .addOption(new Option('--requested-by <who>').default('operator').hideHelp())
    .action(async (names: string[], options: RebuildOptions) => {
      // Named projections of one topic share one reading; all of them one by one need less memory.
      const wanted = namedProjections(names, options.all);
      if (options.drop && !options.swap)
        throw new AppError('INVALID', '--drop needs a swap: leave out --no-swap, or --drop');
      const runs = options.all ? wanted.map((one) => [one]) : [wanted];
      const print = options.json ? (): void => {} : say;
      const done: RebuildReport[] = [];
      try {
        await withStores(commandConfig(process.env), 'tds-rebuild', log, async (stores) => {
          for (const run of runs) {
            const report = await rebuildNow(stores, run, {
              swap: options.swap,
              quiet: options.json,
              requestedBy: options.requestedBy,
            });
            done.push(report);
            for (const line of rebuildLines(report, options.drop)) print(line);
            if (report.isSwapped && options.drop) await dropPrevious(stores, report, print);
          }
        });
      } finally {
        if (options.json && done.length > 0) say(JSON.stringify(done, null, 2));
      }
    });
  buildsCommand(program, log, say);
}

function buildsCommand(program: Command, log: Logger, say: (line: string) => void): void {
  const builds = program
    .command('builds')
    .description('manage the builds of each read model: serving, building (a shadow build) or retired');
  builds
    .command('list', { isDefault: true })
    .description('list all builds with rows and bytes on disk')
    .action(async () => {
      await withStores(commandConfig(process.env), 'tds-builds', log, async ({ pool, clickhouse }) => {
        for (const known of await listBuilds(pool)) {
          const { projection, version, build, state, retiredAt } = known;
          const since = retiredAt === null ? '' : ` since ${retiredAt.toISOString()}`;
          const sizes = await tableSizes(pool, clickhouse, known);
          const size = sizeText(sizes);
          say(`${projection.padEnd(18)}  build ${build}  version ${version}  ${state}${since}: ${size}`);
          if (sizes.length > 1) for (const one of sizes) say(`  ${one.table}: ${sizeText([one])}`);
        }
      });
    });
  builds
    .command('drop')
    .description('drop the tables of a retired or shadow build')
    .argument('<name>')
    .argument('<build>')
    .action(async (name: string, number: string) => {
      await withStores(commandConfig(process.env), 'tds-builds', log, async ({ pool, clickhouse }) => {
        const found = (await listBuilds(pool, name)).find(({ build }) => String(build) === number);
        if (found === undefined) throw new AppError('NOT_FOUND', `${name} has no build ${number}`);
        await sleep(readersLeft(found));
        await dropBuild(pool, clickhouse, name, found.build);
      });
      say(`Build ${number} of ${name} is dropped.`);
    });
}

/** Drops the builds that a rebuild replaced, once no request reads them; the others also if one fails. */
async function dropPrevious(
  { pool, clickhouse, log }: Stores,
  { builds }: RebuildReport,
  say: (line: string) => void,
): Promise<void> {
  await sleep(READERS_GONE_MS);
  for (const { projection, before } of builds) {
    if (before === null) continue;
    try {
      await dropBuild(pool, clickhouse, projection, before);
      say(`${projection}: build ${before} is dropped.`);
    } catch (error) {
      // An export or a backup that reads its tables may take longer than they are waited for.
      log.error({ err: error }, `build not dropped: run \`tds builds drop ${projection} ${before}\``);
      process.exitCode = 1;
    }
  }
}

/** Rebuilds the read models that `prepareStores` found outdated: together, so that the log is read once. */
export async function rebuildOutdated(
  config: Config,
  outdated: readonly Projection[],
  log: Logger,
  say: (line: string) => void,
): Promise<void> {
  const how = { swap: true, quiet: false, requestedBy: 'operator' };
  const report = await withStores(config, 'tds-rebuild', log, (stores) => rebuildNow(stores, outdated, how));
  for (const line of rebuildLines(report)) say(line);
}

async function rebuildNow(
  { pool, kafka, clickhouse, log }: Stores,
  wanted: readonly Projection[],
  { swap, quiet, requestedBy }: { swap: boolean; quiet: boolean; requestedBy: string },
): Promise<RebuildReport> {
  const what = wanted.map(({ name }) => name).join(', ');
  const progress = showProgress<RebuildProgress>({ what, reading: 'reading', quiet });
  const metrics = createProjectionMetrics(createMetrics('rebuild'));
  try {
    return await withInterrupt((signal) =>
      recordedRebuild({ pool, kafka, clickhouse, clock: systemClock, log, metrics, signal }, wanted, {
        swap,
        requestedBy,
        onProgress: progress.show,
      }),
    );
  } finally {
    progress.end();
  }
}

function namedProjections(names: readonly string[], all: boolean): readonly Projection[] {
  if (all && names.length > 0) throw new AppError('INVALID', 'Specify projections, or --all, not both');
  if (all) return projections;
  if (names.length === 0) {
    throw new AppError('INVALID', 'Specify at least one projection, or --all');
  }
  return [...new Set(names)].map((name) => {
    const found = projections.find((projection) => projection.name === name);
    if (found === undefined) {
      const known = projections.map((projection) => projection.name).join(', ');
      throw new AppError('INVALID', `Unknown projection ${name}: use one of ${known}`);
    }
    return found;
  });
}

/** Milliseconds until no request can be reading a build. */
function readersLeft({ retiredAt }: StoredBuild): number {
  return retiredAt === null ? 0 : Math.max(0, retiredAt.getTime() + READERS_GONE_MS - Date.now());
}
