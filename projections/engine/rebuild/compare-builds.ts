import { z } from 'zod';

import { storedCheckpoints } from '../../../infra/kafka/checkpoints.ts';
import { inTransaction } from '../../../infra/postgres/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { isDeferred } from '../../define.ts';
import type {
  ClickHouseProjection,
  DeferredProjection,
  PostgresProjection,
  Projection,
} from '../../define.ts';
import type { Build, StoredBuild } from '../builds.ts';
import { ownerOf } from '../checkpoints.ts';
import { compareTables, differingRows, isSameSum } from '../compare.ts';
import type { BucketDifference, RowDifference, TablePair } from '../compare.ts';
import { createMessagesSince } from '../messages-since.ts';
import { hasTable } from '../stored-tables.ts';
import { compareDeferred } from './compare-deferred.ts';
import { compareSchemas } from './compare-schemas.ts';
import { replayFold } from './replay.ts';
import type { Goal, OnRead, ReplayDeps } from './replay.ts';

/** How one table of the served build differs from the shadow build's. */
export interface TableReport {
  readonly projection: string;
  readonly table: string;
  /** Rows of the shadow build. */
  readonly rows: number;
  readonly differing: readonly BucketDifference[];
  /** Buckets that were written whenever they were compared: whether they differ is unknown. */
  readonly unsettled: readonly BucketDifference[];
  /** Some of the differing rows; `missing`: the served build did not have it. */
  readonly samples: readonly RowDifference[];
  /** ClickHouse has lost the served table: there was nothing to compare. */
  readonly isLost?: true;
}

/** Rows of the shadow build, without the buckets that could not be compared. */
export function comparedRows({ rows, unsettled }: Pick<TableReport, 'rows' | 'unsettled'>): number {
  // Counted before these buckets were written again.
  return Math.max(0, rows - unsettled.reduce((sum, { theirs }) => sum + theirs.rows, 0));
}

/** A projection, its served build (null: it is new), and the shadow build that is to replace it. */
export interface Rebuilding<P extends Projection = Projection> {
  readonly projection: P;
  readonly served: StoredBuild | null;
  readonly shadow: Build;
  readonly isResumed: boolean;
}

const SAMPLES = 20;
/** Buckets whose differing rows are sampled. */
const SAMPLED = 4;
/** A bucket that is written while it is compared is compared again, up to this often in all. */
const MAX_COMPARISONS = 8;
const BETWEEN_COMPARISONS_MS = 400;

/**
 * Compares each table of a projection's shadow build with the served one, while writers continue, and yields each report.
 *
 * @param sources builds that the deferred tables of the shadow build are derived from instead of the served ones
 * @param catchUp replays the shadow build up to the checkpoints of the served one, and derives its deferred tables
 */
export async function* compareBuilds(
  deps: ReplayDeps,
  { projection, served, shadow }: Rebuilding,
  sources: readonly Build[],
  catchUp: () => Promise<void>,
  onRead: OnRead,
): AsyncGenerator<TableReport> {
  if (served === null) return;
  if (isDeferred(projection))
    yield* await compareWithPasses(deps, projection, { served, shadow, sources }, catchUp);
  else if (projection.kind === 'postgres')
    yield* await compareInSnapshot(deps, projection, served, shadow, onRead);
  else yield* compareWhileWritten(deps, projection, served, shadow, catchUp);
}

/** The transaction sees the served rows and their checkpoint as of one moment; the shadow build is replayed up to it. */
async function compareInSnapshot(
  deps: ReplayDeps,
  projection: PostgresProjection<unknown>,
  served: Build,
  shadow: Build,
  onRead: OnRead,
): Promise<TableReport[]> {
  const { pool } = deps;
  return await inTransaction(pool, async (tx) => {
    await tx.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY');
    const goal = await checkpointsOf(tx, served, projection.topic);
    await replayFold(deps, projection, shadow, goal, onRead);
    const ours = { db: tx, schema: served.names['schema'] ?? '' };
    const theirs = { db: pool, schema: shadow.names['schema'] ?? '' };
    const compared = await compareSchemas(ours, theirs, SAMPLES);
    return compared.map((one) => ({ ...one, projection: projection.name, unsettled: [] }));
  });
}

async function* compareWhileWritten(
  deps: ReplayDeps,
  projection: ClickHouseProjection,
  served: Build,
  shadow: Build,
  catchUp: () => Promise<void>,
): AsyncGenerator<TableReport> {
  for (const [table, theirs] of Object.entries(shadow.names)) {
    const ours = served.names[table];
    if (ours === undefined) continue; // the served version does not have this table
    if (!(await hasTable(deps.clickhouse, ours))) {
      const rows = await countRows(deps.clickhouse, theirs);
      const nothing = { differing: [], unsettled: [], samples: [] };
      yield { projection: projection.name, table, rows, ...nothing, isLost: true };
      continue;
    }
    const pair: TablePair = { name: table, ours, theirs, isDerived: !(table in projection.tables) };
    const compared = await compareTable(deps, projection, shadow, pair, catchUp);
    const buckets = compared.differing.slice(0, SAMPLED).map(({ bucket }) => bucket);
    const samples =
      buckets.length === 0 ? [] : await differingRows(deps.clickhouse, pair, { buckets, limit: SAMPLES });
    yield { projection: projection.name, table, ...compared, samples };
  }
}

/** Deferred tables are compared as wholes: their rows belong to no range of heights. */
async function compareWithPasses(
  deps: ReplayDeps,
  projection: DeferredProjection,
  { served, shadow, sources }: { served: StoredBuild; shadow: Build; sources: readonly Build[] },
  catchUp: () => Promise<void>,
): Promise<TableReport[]> {
  const lost = [];
  for (const table of Object.keys(projection.deferred.compared)) {
    const ours = served.names[table];
    // The served version may not have this table.
    if (ours !== undefined && !(await hasTable(deps.clickhouse, ours))) lost.push(table);
  }
  if (lost.length > 0) {
    const nothing = { rows: 0, differing: [], unsettled: [], samples: [], isLost: true } as const;
    return lost.map((table) => ({ projection: projection.name, table, ...nothing }));
  }
  const compared = await compareDeferred(
    deps,
    { projection, build: served },
    { projection, build: shadow, sources },
    catchUp,
  );
  return compared.map(({ table, ours, theirs, isUnsettled }) => {
    const difference = isSameSum(ours, theirs) ? [] : [{ bucket: 0, where: 'all rows', ours, theirs }];
    return {
      projection: projection.name,
      table,
      rows: theirs.rows,
      differing: isUnsettled ? [] : difference,
      unsettled: isUnsettled ? difference : [],
      samples: [],
    };
  });
}

async function countRows(clickhouse: ReplayDeps['clickhouse'], table: string): Promise<number> {
  const sql = `SELECT count() AS n FROM ${table} FINAL`;
  const [counted] = await clickhouse.rows({ name: 'compare.count', sql, row: countRow });
  return counted?.n ?? 0;
}

const countRow = z.object({ n: z.coerce.number() });

/** A bucket that differs is compared again where it has messages that the shadow build has not read. */
async function compareTable(
  { kafka, clickhouse, pool, clock, signal }: ReplayDeps,
  { topic }: ClickHouseProjection,
  shadow: Build,
  pair: TablePair,
  catchUp: () => Promise<void>,
): Promise<Pick<TableReport, 'rows' | 'differing' | 'unsettled'>> {
  const settled: BucketDifference[] = [];
  let rows: number | null = null;
  let limits: { buckets?: number[] } = {};
  for (let comparisons = 1; ; comparisons += 1) {
    signal.throwIfAborted();
    const offsets = await checkpointsOf(pool, shadow, topic);
    const bucketsSince = createMessagesSince(kafka, topic, offsets, (item) => topic.bucket(item), signal);
    const compared = await compareTables(clickhouse, pair, limits);
    rows ??= compared.rows;
    const written = compared.differing.length === 0 ? new Set<number>() : await bucketsSince();
    settled.push(...compared.differing.filter(({ bucket }) => !written.has(bucket)));
    const unsettled = compared.differing.filter(({ bucket }) => written.has(bucket));
    if (unsettled.length === 0 || comparisons === MAX_COMPARISONS)
      return { rows, differing: settled, unsettled };
    limits = { buckets: unsettled.map(({ bucket }) => bucket) };
    await clock.sleep(BETWEEN_COMPARISONS_MS, signal);
    await catchUp();
  }
}

async function checkpointsOf(db: Sql, build: Build, topic: Topic<unknown>): Promise<Goal> {
  const stored = await storedCheckpoints(db, ownerOf(build), topic);
  return new Map(stored.map(({ partition, nextOffset }) => [partition, nextOffset]));
}
