import { z } from 'zod';

import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import { pause } from '../../../infra/lifecycle.ts';
import { withAdvisoryLocks } from '../../../infra/postgres/advisory-lock.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import { HEIGHT_RANGE, partitionOfHeight, topics } from '../../../schemas/topics.ts';
import type { Heights } from '../compare.ts';
import type { ClickHouseProjection } from '../../define.ts';
import type { Difference } from './difference.ts';
import { logBlocks, logDifferences, scanLog } from './log.ts';
import type { LogBlock, LogRange } from './log.ts';
import { trackRewrittenHeights } from './rewritten-heights.ts';
import { repairTables } from './repair.ts';
import type { RepairedRows } from './repair.ts';
import { openScratch, sweepScratch } from './scratch.ts';
import type { Scratch } from './scratch.ts';
import { chainProgress, indexedHeights, partitionsOf, skippedMessages, stateDifferences } from './state.ts';
import { conservationDifferences, derivedDifferences, rowDifferences } from './tables.ts';
import { descending } from '../../descending.ts';

export interface VerifyDeps {
  readonly pool: Pool;
  readonly clickhouse: ClickHouse;
  readonly kafka: Pick<Kafka, 'offsets' | 'topicId' | 'readRanges'>;
  readonly projections: readonly ClickHouseProjection[];
  readonly signal: AbortSignal;
}

export interface VerifyOptions {
  /** null: the lowest, or highest, that is indexed. */
  readonly from: number | null;
  readonly to: number | null;
  /** Makes the tables what the log says. */
  readonly repair: boolean;
  readonly onProgress?: (progress: VerifyProgress) => void;
  /** Compares blocks of the log with another source; all of them, or those whose headers give no counts. */
  readonly compareBlocks?: (
    blocks: (onlyUncounted: boolean) => AsyncIterable<LogBlock>,
  ) => Promise<Difference[]>;
  /** How long projections are waited for that are behind the log. */
  readonly waitMs?: number;
  /** Pause before what differs is looked at again. */
  readonly betweenLooksMs?: number;
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
  /** What is so now. */
  readonly differences: readonly Difference[];
  /** What was found before it was repaired. */
  readonly found: readonly Difference[];
  /** Wrong rows that were taken away. */
  readonly repairedRows: number;
  /** The same by table, and the rows that were put in. */
  readonly repairedTables: Readonly<Record<string, RepairedRows>>;
}

/** A difference may be a write in progress: it is compared again, up to this often, before it is reported. */
const LOOKS = 4;
interface Seen {
  readonly differences: Difference[];
  /** Of heights about which the log got messages in the meantime: nothing is known of them until they are looked at again. */
  readonly passing: Difference[];
}
const BETWEEN_LOOKS_MS = 1500;
const WAIT_MS = 60_000;
const REPAIRS = 3;

/**
 * Header counts ↔ log ↔ tables ↔ sums ↔ checkpoints, over heights both inclusive. Reads the log once, writes what it says
 * into tables beside those that are served, and compares in ClickHouse; memory is bounded, the disk holds the verified
 * heights twice. May run beside everything else; one at a time.
 *
 * @throws when it is inconclusive: a store is unavailable, a projection is behind, or the tables have another version
 */
export async function verify(deps: VerifyDeps, options: VerifyOptions): Promise<VerifyReport> {
  const busy = (): string => 'Another verification is running';
  return await withAdvisoryLocks(deps.pool, ['tds.verify'], busy, async (assertHeld) => {
    const bounds = boundsOf(await indexedHeights(deps.pool), options);
    if (bounds === null) {
      const differences = await stateDifferences(deps.pool, deps.kafka);
      return {
        heights: null,
        messages: 0,
        differences,
        found: differences,
        repairedRows: 0,
        repairedTables: {},
      };
    }
    await sweepScratch(deps.clickhouse);
    let messages = 0;
    const repairedTables: Record<string, RepairedRows> = {};
    const run = async (
      heights: Heights,
      hinted: boolean,
      repair: readonly Difference[] | null = null,
    ): Promise<Seen> => {
      const outcome = await look(deps, options, { heights, hinted, repair, assertHeld });
      messages += outcome.messages;
      addRepairedRows(repairedTables, outcome.mended);
      return outcome;
    };

    const pauseMs = options.betweenLooksMs ?? BETWEEN_LOOKS_MS;
    let differences = await settle(bounds, run, pauseMs);
    const found = differences;
    for (let round = 0; options.repair && round < REPAIRS && differences.some(isInTable); round += 1) {
      const span = spanOf(differences) ?? bounds;
      await run(span, false, differences);
      differences = await settle(span, run, pauseMs);
    }
    const repairedRows = Object.values(repairedTables).reduce((sum, { taken }) => sum + taken, 0);
    return { heights: bounds, messages, differences, found, repairedRows, repairedTables };
  });
}

/** Adds up, by table. */
export function addRepairedRows(
  sums: Record<string, RepairedRows>,
  more: Iterable<readonly [string, RepairedRows]>,
): void {
  for (const [table, { taken, put }] of more) {
    const sum = sums[table] ?? { taken: 0, put: 0 };
    sums[table] = { taken: sum.taken + taken, put: sum.put + put };
  }
}

/** Compares again while something differs. */
async function settle(
  bounds: Heights,
  lookAt: (heights: Heights, hinted: boolean) => Promise<Seen>,
  pauseMs: number,
): Promise<Difference[]> {
  let { differences, passing } = await lookAt(bounds, true);
  const unreadable = differences.filter(({ kind, heights }) => kind === 'log' && heights === null);
  for (let looks = 1; looks < LOOKS && differences.length + passing.length > 0; looks += 1) {
    await pause(pauseMs);
    const all = [...differences, ...passing];
    const span = spanOf(all) ?? { from: bounds.from, to: bounds.from };
    const before = new Set(differences.map(({ what }) => what));
    // What is indexed may be what is wrong.
    ({ differences, passing } = await lookAt(span, !all.some(({ kind }) => kind === 'log')));
    // The same twice: not a write in progress.
    if (passing.length > 0) continue;
    if (differences.length === before.size && differences.every(({ what }) => before.has(what))) break;
  }
  if (differences.length === 0 && passing.length > 0) {
    throw new AppError(
      'CONFLICT',
      'Verification inconclusive: repairs in progress rewrite blocks while they are compared; try again',
    );
  }
  const known = new Set(differences.map(({ what }) => what));
  return [...unreadable.filter(({ what }) => !known.has(what)), ...differences];
}

/** One reading of the log over these heights, with everything that is compared with it. */
async function look(
  deps: VerifyDeps,
  { onProgress = () => {}, compareBlocks, waitMs = WAIT_MS }: VerifyOptions,
  {
    heights,
    hinted,
    repair,
    assertHeld,
  }: {
    heights: Heights;
    hinted: boolean;
    repair: readonly Difference[] | null;
    assertHeld: () => Promise<void>;
  },
): Promise<Seen & { messages: number; mended: ReadonlyMap<string, RepairedRows> }> {
  const { pool, clickhouse, kafka, signal } = deps;
  const state = await stateDifferences(pool, kafka);
  const scratch = await openScratch(pool, clickhouse, deps.projections);
  try {
    onProgress({ phase: 'waiting for the projections', read: 0, total: 0 });
    const ranges = await logRanges(deps, scratch, { heights, hinted, waitMs });
    const total = ranges.reduce((sum, { from, to }) => sum + to - from, 0);
    let messages = 0;
    const unreadable = await scanLog({
      kafka,
      clickhouse,
      scratch,
      heights,
      ranges,
      skipped: await skippedMessages(pool),
      signal,
      onRead(read) {
        messages += read;
        onProgress({ phase: 'reading the log', read: messages, total });
      },
    });
    const highest = new Map(ranges.map(({ partition, projected }) => [partition, projected - 1]));
    const rewrittenHeights = trackRewrittenHeights(kafka, ranges, heights, signal);
    const mended =
      repair === null
        ? new Map<string, RepairedRows>()
        : await repairTables({ pool, clickhouse, scratch, rewrittenHeights, assertHeld }, repair, (range) =>
            Math.max(0, highest.get(partitionOfHeight(range * HEIGHT_RANGE)) ?? 0),
          );
    onProgress({ phase: repair === null ? 'comparing' : 'repairing', read: messages, total });
    const expected = (await indexedHeights(pool)).map(({ from, to }) => ({
      from: Math.max(from, heights.from),
      to: Math.min(to, heights.to),
    }));
    const differences = [
      ...state,
      ...unreadable,
      ...(await logDifferences(clickhouse, scratch, expected)),
      ...(await rowDifferences(clickhouse, scratch, heights)),
      ...(await derivedDifferences(clickhouse, scratch, heights)),
      ...(await conservationDifferences(clickhouse, scratch, heights)),
      ...((await compareBlocks?.((onlyUncounted) => logBlocks(clickhouse, scratch, onlyUncounted))) ?? []),
    ];
    const rewritten = await rewrittenHeights();
    return {
      differences: differences.filter((one) => !isOf(one, rewritten)),
      passing: differences.filter((one) => isOf(one, rewritten)),
      messages,
      mended,
    };
  } finally {
    // What is left goes at the next verification: that a store is away must not hide what happened.
    await scratch.drop().catch(() => {});
  }
}

const hintRow = z.object({ partition: z.number(), first: z.coerce.number(), blocks: z.coerce.number() });

/**
 * Where in the log these heights lie. What is indexed says where their newest blocks begin; if it does not know every one
 * of them, all of their partitions is read. Waits until the projections have read that far.
 */
async function logRanges(
  { pool, clickhouse, kafka, signal }: VerifyDeps,
  scratch: Scratch,
  { heights, hinted, waitMs }: { heights: Heights; hinted: boolean; waitMs: number },
): Promise<LogRange[]> {
  const wanted = partitionsOf(heights);
  const places = (await kafka.offsets(topics.chainBlocks)).filter(({ partition }) => wanted.has(partition));
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
  const until = Date.now() + waitMs;
  for (;;) {
    const { lowest, halted } = await chainProgress(pool);
    const behind = places.filter(
      ({ partition, low, high }) =>
        !halted.has(partition) && (lowest.get(partition) ?? 0) < high && (lowest.get(partition) ?? 0) >= low,
    );
    if (behind.length === 0) {
      return places.map(({ partition, low, high }) => ({
        partition,
        from: isWhole ? Math.max(low, Math.min(high, firsts.get(partition) ?? low)) : low,
        to: high,
        projected: Math.min(high, lowest.get(partition) ?? 0),
      }));
    }
    if (Date.now() > until) {
      const [first] = behind;
      throw new AppError(
        'CONFLICT',
        `Verification inconclusive: the projections are behind the log at chain.blocks:${first?.partition} (${lowest.get(first?.partition ?? 0) ?? 0} of ${first?.high})`,
      );
    }
    await pause(200, signal);
    signal.throwIfAborted();
  }
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
function spanOf(differences: readonly Difference[]): Heights | null {
  const spans = differences.flatMap(({ heights }) => (heights === null ? [] : [heights]));
  if (spans.length === 0) return null;
  return {
    from: Math.min(...spans.map(({ from }) => from)),
    to: Math.max(...spans.map(({ to }) => to)),
  };
}

/** A row that is named is of its block; everything else of all its heights. */
function isOf({ heights, height }: Difference, rewritten: ReadonlySet<number>): boolean {
  if (heights === null) return false;
  if (typeof height === 'number') return rewritten.has(height);
  return [...rewritten].some((height) => height >= heights.from && height <= heights.to);
}

export function isInTable({ table }: Difference): boolean {
  return table !== undefined;
}
