import { z } from 'zod';

import { isClickHouseUnavailable } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Kafka, TopicOffsets } from '../../../infra/kafka/client.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import type { Logger } from '../../../infra/log.ts';
import { withAdvisoryLocks } from '../../../infra/postgres/advisory-lock.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { isStoreUnavailable } from '../../../infra/retry-while-unavailable.ts';
import { retry } from '../../../infra/retry.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { EventCheck } from '../../../schemas/messages/chain-blocks.ts';
import { HEIGHT_RANGE, partitionOfHeight, rangeOf, topics } from '../../../schemas/topics.ts';
import type { BlockProjection, DeferredProjection } from '../../define.ts';
import { descending } from '../../descending.ts';
import { chainBlocks } from '../../streams.ts';
import type { Heights } from '../compare.ts';
import { createMessagesSince } from '../messages-since.ts';
import type { ProjectionMetrics } from '../metrics.ts';
import type { Difference } from './difference.ts';
import { commitmentOutcomes, logBlocks, logDifferences } from './log.ts';
import type { LogBlock } from './log.ts';
import { endInterruptedRepairs, repairTables, repairedLines } from './repair.ts';
import type { RepairedRows } from './repair.ts';
import { scanLog } from './scan.ts';
import type { LogRange } from './scan.ts';
import { openScratch, sweepScratch } from './scratch.ts';
import type { Scratch } from './scratch.ts';
import { chainProgress, indexedHeights, partitionsOf, skippedMessages, stateDifferences } from './state.ts';
import { settledDerived, tableDifferences } from './tables.ts';

export interface VerifyDeps {
  readonly pool: Pool;
  readonly clickhouse: ClickHouse;
  readonly kafka: Pick<Kafka, 'offsets' | 'topicId' | 'readRanges'>;
  readonly projections: readonly BlockProjection[];
  /** Not compared; what a repair changes is due again for them. */
  readonly deferred: readonly DeferredProjection[];
  readonly log: Logger;
  readonly metrics: ProjectionMetrics;
  readonly signal: AbortSignal;
}

export interface VerifyOptions {
  /** null: the lowest, or highest, that is indexed. */
  readonly from: number | null;
  readonly to: number | null;
  /** Makes the tables what the log says. */
  readonly repair: boolean;
  /** Compares the events of each block with the commitment in its header, which takes some 60 µs an event. */
  readonly commitments?: boolean;
  readonly onProgress?: (progress: VerifyProgress) => void;
  /** Compares blocks of the log with another source: all of them, or those whose headers give no counts. */
  readonly compareBlocks?: (
    blocks: (onlyUncounted: boolean) => AsyncIterable<LogBlock>,
  ) => Promise<Difference[]>;
  /** How long to wait for projections that are behind the log. */
  readonly waitMs?: number;
  /** Pause before a difference is compared again. */
  readonly betweenComparisonsMs?: number;
}

export interface VerifyProgress {
  readonly phase: 'waiting for the projections' | 'reading the log' | 'comparing' | 'repairing';
  readonly read: number;
  readonly total: number;
}

export interface VerifyReport {
  /** null: nothing is indexed. */
  readonly heights: Heights | null;
  readonly messages: number;
  /** Blocks by the comparison with their event commitments, before a repair; null: not asked for. */
  readonly commitments: Readonly<Record<EventCheck, number>> | null;
  /** The differences that remain. */
  readonly differences: readonly Difference[];
  /** The differences before the repair. */
  readonly found: readonly Difference[];
  /** Wrong rows that were deleted. */
  readonly repairedRows: number;
  /** Rows that were deleted and inserted, by table. */
  readonly repairedTables: Readonly<Record<string, RepairedRows>>;
}

interface Comparison {
  readonly commitments: VerifyReport['commitments'];
  readonly differences: Difference[];
  /** Differences at heights about which the log got messages meanwhile: only another comparison can tell. */
  readonly unsettled: Difference[];
}

/** A difference may be a write in progress: it is compared again, up to this often in all, before it is reported. */
const MAX_COMPARISONS = 4;
const BETWEEN_COMPARISONS_MS = 1500;
const WAIT_MS = 60_000;
const REPAIRS = 3;

/**
 * Compares header counts, the log, the tables, sums and checkpoints over a range of heights. Reads the log once, replays
 * it into scratch tables, and compares these with the served ones in ClickHouse; memory is bounded, the disk holds the
 * rows of the verified heights twice. May run beside everything but another verification. Writers wait while sums of a range that
 * gets new blocks meanwhile are compared.
 *
 * @throws when it is inconclusive: a store is unavailable, a projection is behind, or the tables have another version
 */
export async function verify(deps: VerifyDeps, options: VerifyOptions): Promise<VerifyReport> {
  const busy = (): string => 'Another verification is running';
  return await withAdvisoryLocks(deps.pool, ['tds.verify'], busy, async (assertLockHeld) => {
    await endInterruptedRepairs(deps);
    const bounds = boundsOf(await indexedHeights(deps.pool), options);
    if (bounds === null) {
      const differences = await stateDifferences(deps.pool, deps.kafka);
      const nothing = { heights: null, messages: 0, commitments: null, repairedRows: 0, repairedTables: {} };
      return { ...nothing, differences, found: differences };
    }
    await sweepScratch(deps.clickhouse);
    let messages = 0;
    // Counted by the first comparison, which covers all heights.
    let commitments: VerifyReport['commitments'] = null;
    const repairedTables: Record<string, RepairedRows> = {};
    const compare = async (heights: Heights, hinted: boolean): Promise<Comparison> =>
      await withScan(deps, options, { heights, hinted }, async (scan) => {
        messages += scan.messages;
        const found = await differencesOf(deps, options, scan);
        commitments ??= found.commitments;
        return found;
      });

    const pauseMs = options.betweenComparisonsMs ?? BETWEEN_COMPARISONS_MS;
    let differences = await settle(bounds, compare, pauseMs);
    const found = differences;
    try {
      for (let round = 0; options.repair && round < REPAIRS && differences.some(isInTable); round += 1) {
        const heights = spanOf(differences) ?? bounds;
        await withScan(deps, options, { heights, hinted: false }, async (scan) => {
          messages += scan.messages;
          await repairFrom(deps, options, scan, { differences, assertLockHeld, repaired: repairedTables });
        });
        differences = await settle(heights, compare, pauseMs);
      }
    } catch (error) {
      throw withRepairedRows(error, repairedTables);
    }
    const repairedRows = Object.values(repairedTables).reduce((sum, { deleted }) => sum + deleted, 0);
    return { heights: bounds, messages, commitments, differences, found, repairedRows, repairedTables };
  });
}

/** Adds what was repaired to the error of a verification that cannot tell whether it was enough. */
function withRepairedRows(error: unknown, tables: VerifyReport['repairedTables']): unknown {
  const repaired = repairedLines(tables);
  if (!(error instanceof Error) || repaired.length === 0) return error;
  const message = `${error.message}. Repaired: ${repaired.join('; ')}`;
  if (error instanceof AppError) {
    const { code, retryable, details } = error;
    return new AppError(code, message, { retryable, details, cause: error });
  }
  if (!isStoreUnavailable(error) && !isClickHouseUnavailable(error)) return error;
  return new AppError('STORE_UNAVAILABLE', message, { cause: error });
}

/** Compares again while something differs, until two comparisons in a row find the same differences. */
async function settle(
  bounds: Heights,
  compare: (heights: Heights, hinted: boolean) => Promise<Comparison>,
  pauseMs: number,
): Promise<Difference[]> {
  let { differences, unsettled } = await compare(bounds, true);
  const unreadable = differences.filter(({ kind, heights }) => kind === 'log' && heights === null);
  for (
    let comparisons = 1;
    comparisons < MAX_COMPARISONS && differences.length + unsettled.length > 0;
    comparisons += 1
  ) {
    await sleep(pauseMs);
    const all = [...differences, ...unsettled];
    const span = spanOf(all) ?? { from: bounds.from, to: bounds.from };
    const previous = new Set(differences.map(({ what }) => what));
    // Where the log differs, the table of indexed blocks may be wrong, too, and must not say where to read.
    ({ differences, unsettled } = await compare(span, !all.some(({ kind }) => kind === 'log')));
    if (unsettled.length > 0) continue;
    if (differences.length === previous.size && differences.every(({ what }) => previous.has(what))) break;
  }
  if (differences.length === 0 && unsettled.length > 0) {
    const at = unsettled.map(({ height, heights }) =>
      typeof height === 'number' ? { from: height, to: height } : heights,
    );
    const { from, to } = spanOf(at.map((heights) => ({ heights }))) ?? bounds;
    throw new AppError(
      'CONFLICT',
      `Verification inconclusive: blocks ${from} to ${to} were written again while they were compared, as by repairs in progress; try again`,
    );
  }
  const known = new Set(differences.map(({ what }) => what));
  return [...unreadable.filter(({ what }) => !known.has(what)), ...differences];
}

interface Scanned {
  readonly scratch: Scratch;
  readonly heights: Heights;
  readonly ranges: readonly LogRange[];
  readonly messages: number;
  readonly unreadable: readonly Difference[];
  /** The heights, in the ranges that are verified, about which the log has got messages since. */
  readonly heightsSince: () => Promise<ReadonlySet<number>>;
}

/** Replays the log of these heights into scratch tables, which live as long as `work`. */
async function withScan<T>(
  deps: VerifyDeps,
  { onProgress = () => {}, waitMs = WAIT_MS, commitments = false }: VerifyOptions,
  { heights, hinted }: { heights: Heights; hinted: boolean },
  work: (scan: Scanned) => Promise<T>,
): Promise<T> {
  const { pool, clickhouse, kafka, signal } = deps;
  const compared = deps.projections.filter(({ isHistory }) => isHistory !== true);
  const scratch = await openScratch(pool, clickhouse, compared, commitments);
  try {
    onProgress({ phase: 'waiting for the projections', read: 0, total: 0 });
    const ranges = await logRanges(deps, scratch, { heights, hinted, waitMs });
    const total = ranges.reduce((sum, { from, to }) => sum + to - from, 0);
    let messages = 0;
    const unreadable = await scanLog({
      ...deps,
      scratch,
      heights,
      ranges,
      skipped: await skippedMessages(pool),
      onRead(read) {
        messages += read;
        onProgress({ phase: 'reading the log', read: messages, total });
      },
    });
    const ends = new Map(ranges.map(({ partition, to }) => [partition, to]));
    const since = createMessagesSince(kafka, chainBlocks, ends, (item) => item.message.block.height, signal);
    // Of whole ranges: a derived row changes with every block of its range, also outside the verified heights.
    const { from, to } = { from: rangeOf(heights.from), to: rangeOf(heights.to) };
    const heightsSince = async (): Promise<ReadonlySet<number>> =>
      new Set([...(await since())].filter((height) => rangeOf(height) >= from && rangeOf(height) <= to));
    return await work({ scratch, heights, ranges, messages, unreadable, heightsSince });
  } finally {
    // A failure to drop must not hide what happened; the next verification drops what is left.
    await scratch.drop().catch(() => {});
  }
}

async function differencesOf(
  { pool, clickhouse, kafka }: VerifyDeps,
  { onProgress, compareBlocks, commitments = false }: VerifyOptions,
  { scratch, heights, messages, unreadable, heightsSince }: Scanned,
): Promise<Comparison> {
  onProgress?.({ phase: 'comparing', read: messages, total: messages });
  const expected = (await indexedHeights(pool)).map(({ from, to }) => ({
    from: Math.max(from, heights.from),
    to: Math.min(to, heights.to),
  }));
  const differences = [
    ...(await stateDifferences(pool, kafka)),
    ...unreadable,
    ...(await logDifferences(clickhouse, scratch, expected)),
    ...(await tableDifferences(clickhouse, scratch, heights)),
    ...((await compareBlocks?.((onlyUncounted) => logBlocks(clickhouse, scratch, onlyUncounted))) ?? []),
  ];
  const rewritten = await heightsSince();
  const unsettled = differences.filter((one) => isAtOneOf(one, rewritten));
  // At the head, every block changes sums of its range.
  const derived = unsettled.filter(({ kind }) => kind === 'derived');
  return {
    commitments: commitments ? await commitmentOutcomes(clickhouse, scratch) : null,
    differences: [
      ...differences.filter((one) => !isAtOneOf(one, rewritten)),
      ...(await settledDerived({ pool, clickhouse }, scratch, derived)),
    ],
    unsettled: unsettled.filter(({ kind }) => kind !== 'derived'),
  };
}

async function repairFrom(
  { pool, clickhouse, deferred }: VerifyDeps,
  { onProgress }: VerifyOptions,
  { scratch, ranges, messages, heightsSince }: Scanned,
  {
    differences,
    assertLockHeld,
    repaired,
  }: {
    differences: readonly Difference[];
    assertLockHeld: () => Promise<void>;
    repaired: Record<string, RepairedRows>;
  },
): Promise<void> {
  onProgress?.({ phase: 'repairing', read: messages, total: messages });
  const highest = new Map(ranges.map(({ partition, projected }) => [partition, projected - 1]));
  await repairTables(
    { pool, clickhouse, deferred, scratch, heightsSince, assertLockHeld },
    differences,
    (range) => Math.max(0, highest.get(partitionOfHeight(range * HEIGHT_RANGE)) ?? 0),
    repaired,
  );
}

const hintRow = z.object({ partition: z.number(), first: z.coerce.number(), blocks: z.coerce.number() });

/**
 * The part of the log that holds these heights, once the projections have read it: from where the newest blocks begin,
 * if the table of indexed blocks knows each of them, or else all of their partitions.
 */
async function logRanges(
  { pool, clickhouse, kafka, signal }: VerifyDeps,
  scratch: Scratch,
  { heights, hinted, waitMs }: { heights: Heights; hinted: boolean; waitMs: number },
): Promise<LogRange[]> {
  const wanted = partitionsOf(heights);
  const offsets = (await kafka.offsets(topics.chainBlocks)).filter(({ partition }) => wanted.has(partition));
  const table = scratch.tables.find(({ name }) => name === 'indexed_blocks')?.ours;
  const hints = await clickhouse.rows(
    {
      name: 'verify.hint',
      sql: `SELECT log_partition AS partition, min(log_offset) AS first, count() AS blocks FROM ${table} FINAL
      PREWHERE block_desc BETWEEN {newest:UInt32} AND {oldest:UInt32} GROUP BY partition`,
      row: hintRow,
    },
    { newest: descending(heights.to), oldest: descending(heights.from) },
  );
  const known = hints.reduce((sum, { blocks }) => sum + blocks, 0);
  const isWhole = hinted && known === heights.to - heights.from + 1;
  const firsts = new Map(hints.map(({ partition, first }) => [partition, first]));
  const lowest = await retry(() => progressPast(pool, offsets), {
    isRetryable: (error) => error instanceof ProjectionsBehind,
    baseMs: 200,
    maxMs: 200,
    deadlineMs: waitMs,
    signal,
  });
  return offsets.map(({ partition, low, high }) => ({
    partition,
    from: isWhole ? Math.max(low, Math.min(high, firsts.get(partition) ?? low)) : low,
    to: high,
    projected: Math.min(high, lowest.get(partition) ?? 0),
  }));
}

class ProjectionsBehind extends AppError {}

/**
 * The lowest checkpoint by partition; throws while one is below the end of the log and below the message that halts it: rows of
 * later messages may be in the tables.
 */
async function progressPast(
  pool: Pool,
  offsets: readonly TopicOffsets[],
): Promise<ReadonlyMap<number, number>> {
  const { lowest, halts } = await chainProgress(pool);
  const behind = offsets.find(({ partition, low, high }) => {
    const checkpoint = lowest.get(partition) ?? 0;
    return !halts.has(`${partition}:${checkpoint}`) && checkpoint < high && checkpoint >= low;
  });
  if (behind === undefined) return lowest;
  const { partition, high } = behind;
  throw new ProjectionsBehind(
    'CONFLICT',
    `Verification inconclusive: the projections are behind the log at chain.blocks:${partition} (${lowest.get(partition) ?? 0} of ${high})`,
  );
}

function boundsOf(indexed: readonly Heights[], { from, to }: VerifyOptions): Heights | null {
  if (from !== null && to !== null && from > to)
    throw new AppError('INVALID', `The lowest height, ${from}, is above the highest, ${to}`);
  const lowest = indexed[0]?.from;
  if (lowest === undefined) return null;
  const highest = Math.max(...indexed.map((heights) => heights.to));
  const bounds = { from: Math.max(from ?? lowest, lowest), to: Math.min(to ?? highest, highest) };
  if (bounds.from <= bounds.to) return bounds;
  throw new AppError('INVALID', `Nothing is indexed there: the heights are ${lowest} to ${highest}`);
}

/** The heights that hold all these differences. */
function spanOf(differences: readonly Pick<Difference, 'heights'>[]): Heights | null {
  const spans = differences.flatMap(({ heights }) => (heights === null ? [] : [heights]));
  if (spans.length === 0) return null;
  return {
    from: Math.min(...spans.map(({ from }) => from)),
    to: Math.max(...spans.map(({ to }) => to)),
  };
}

/** A row of one block is at its height, a derived row at all heights of its range, every other difference at all its own. */
function isAtOneOf({ kind, heights, height, range }: Difference, rewritten: ReadonlySet<number>): boolean {
  if (heights === null) return false;
  if (typeof height === 'number') return rewritten.has(height);
  if (kind === 'derived') return [...rewritten].some((one) => rangeOf(one) === range);
  return [...rewritten].some((height) => height >= heights.from && height <= heights.to);
}

function isInTable({ table }: Difference): boolean {
  return table !== undefined;
}
