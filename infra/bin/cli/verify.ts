import type { Command } from 'commander';

import { requestRepairs, waitForRepairs } from '../../../pipeline/ingest/repair/requests.ts';
import { compareBlocks } from '../../../pipeline/node/compare-blocks.ts';
import { createChainCheck } from '../../../pipeline/ingest/start.ts';
import { createIngestStore } from '../../../pipeline/ingest/store/store.ts';
import { reportLines } from '../../../projections/engine/verify/report-lines.ts';
import type { Difference } from '../../../projections/engine/verify/difference.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { chainProjections, deferredProjections } from '../../../projections/index.ts';
import { addRepairedRows } from '../../../projections/engine/verify/repair.ts';
import { verify } from '../../../projections/engine/verify/verify.ts';
import type {
  VerifyOptions,
  VerifyProgress,
  VerifyReport,
} from '../../../projections/engine/verify/verify.ts';
import { isRetryable } from '../../../schemas/errors.ts';
import type { Logger } from '../../log.ts';
import { required } from '../../config.ts';
import { createMetrics } from '../../metrics.ts';
import { VERIFY_DIFFERENCES, recordedVerify } from '../operator/verify-runs.ts';
import { errorText } from '../process/error-text.ts';
import { commandConfig } from '../command-config.ts';
import { openNode, withStores } from '../connect.ts';
import type { Stores } from '../connect.ts';
import { showProgress, withInterrupt } from './progress.ts';
import { nonNegativeInteger } from './arguments.ts';

interface Options {
  from?: number;
  to?: number;
  repair: boolean;
  node: boolean;
  commitments: boolean;
  json: boolean;
}

const INCONCLUSIVE = 2;
/** Shows no progress before this: most runs end sooner. */
const PROGRESS_AFTER_MS = 5000;
/** Time for the ingester to repair blocks. */
const REPAIR_TIMEOUT_MS = 120_000;

/** `tds verify`: exit code 0 without differences, 1 with differences, 2 if inconclusive or used wrongly. */
export function verifyCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('verify')
    .description(
      'compare the log with the counts in block headers, every projected table, sums and checkpoints; ' +
        'exit code 0: no differences, 1: differences, 2: inconclusive',
    )
    .option('--from <height>', 'lowest height (default: the lowest indexed)', nonNegativeInteger)
    .option('--to <height>', 'highest height (default: the highest indexed)', nonNegativeInteger)
    .option('--repair', 'repair the tables from the log, and read missing blocks from the node again', false)
    .option(
      '--node',
      'read every block from the node again, not only those whose header has no counts',
      false,
    )
    .option(
      '--commitments',
      'compare the events of every block with the commitment in its header: some 60 µs of CPU an event',
      false,
    )
    .option('--json', 'print the result as JSON', false)
    // 1 would mean differences.
    .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : INCONCLUSIVE))
    .action(async (options: Options) => {
      /** Of the time before blocks are read again. */
      const first: VerifyReport[] = [];
      const show = (report: VerifyReport): void => {
        if (options.json) say(JSON.stringify(report, null, 2));
        else for (const line of reportLines(report)) say(line);
      };
      try {
        const config = commandConfig(process.env);
        if (options.node) required(config, 'starknetRpcUrl');
        const report = await withStores(config, 'tds-verify', log, (stores) =>
          withInterrupt(
            (signal) =>
              recordedVerify({ ...stores, signal }, () => verifyNow(stores, options, signal, first)),
            'Stopped',
          ),
        );
        show(report);
        if (report.differences.length > 0) process.exitCode = VERIFY_DIFFERENCES;
      } catch (error) {
        for (const report of first) show(report);
        process.stderr.write(`${errorText(error)}\n`);
        process.exitCode = INCONCLUSIVE;
      }
    });
}

/** @param first gets the report of the time before blocks are read again */
async function verifyNow(
  stores: Stores,
  options: Options,
  signal: AbortSignal,
  first: VerifyReport[],
): Promise<VerifyReport> {
  const { pool, clickhouse, kafka, log } = stores;
  const progress = showProgress<VerifyProgress>({
    what: 'verify',
    reading: 'reading the log',
    quiet: options.json,
    afterMs: PROGRESS_AFTER_MS,
  });
  const metrics = createProjectionMetrics(createMetrics('verify'));
  const deps = {
    pool,
    clickhouse,
    kafka,
    projections: chainProjections,
    deferred: deferredProjections,
    log,
    metrics,
    signal,
  };
  const how = {
    from: options.from ?? null,
    to: options.to ?? null,
    repair: options.repair,
    commitments: options.commitments,
    onProgress: progress.show,
    compareBlocks: nodeComparison(stores, options, signal),
  };
  try {
    const report = await verify(deps, how);
    const reread = report.differences.filter((one) => one.reread === true).flatMap(heightsOf);
    if (!options.repair || reread.length === 0) return report;
    first.push(report);
    const heights = [...new Set(reread)];
    await requestRepairs(pool, heights, 'verify', { reread: true });
    const left = await waitForRepairs(pool, heights, { withinMs: REPAIR_TIMEOUT_MS, signal });
    if (left > 0)
      log.warn({ left }, 'blocks not repaired yet; verify again once `tds status` shows no repairs left');
    const again = await verify(deps, how);
    const repairedTables = { ...report.repairedTables };
    addRepairedRows(repairedTables, again.repairedTables);
    const repairedRows = report.repairedRows + again.repairedRows;
    return { ...again, commitments: report.commitments, found: report.found, repairedRows, repairedTables };
  } finally {
    progress.end();
  }
}

/** Compares blocks with the node; without a node none, and with one that does not answer none unless `--node` is given. */
function nodeComparison(
  stores: Stores,
  options: Options,
  signal: AbortSignal,
): NonNullable<VerifyOptions['compareBlocks']> {
  if (stores.config.starknetRpcUrl === null) return async () => [];
  const checkChain = createChainCheck(createIngestStore(stores.pool));
  const node = openNode(stores, createMetrics('verify'), { maxConcurrent: 8, checkChain });
  return async (blocks) => {
    try {
      const found = await compareBlocks(node, blocks(!options.node), { signal });
      return found.map(({ height, what }) => ({
        kind: 'node' as const,
        what,
        heights: { from: height, to: height },
        reread: true,
      }));
    } catch (error) {
      // With --node an unavailable node makes the result inconclusive.
      if (options.node || !isRetryable(error)) throw error;
      stores.log.warn({ err: error }, 'node unavailable, blocks without counts not compared');
      return [];
    }
  };
}

function heightsOf({ heights }: Difference): number[] {
  if (heights === null) return [];
  return Array.from({ length: heights.to - heights.from + 1 }, (_, index) => heights.from + index);
}
