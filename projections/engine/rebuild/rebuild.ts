import { AppError } from '../../../schemas/errors.ts';
import { withRebuildLock, needsRebuild, openShadowBuild, swapBuilds, servedBuild } from '../builds.ts';
import type { Build } from '../builds.ts';
import { identifyLog } from '../../../infra/kafka/checkpoints.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import { canResume, loadCheckpoints } from '../checkpoints.ts';
import { lowestServed } from '../../progress.ts';
import { isDeferred } from '../../define.ts';
import type { ClickHouseProjection, Projection } from '../../define.ts';
import { hasRecordedSources, recordSources } from '../deferred/derive.ts';
import { deriveBuild } from '../deferred/derive-build.ts';
import { withWritersStopped } from '../served-lock.ts';
import { lostTable } from '../stored-tables.ts';
import { restoreFromSnapshot, newestSnapshot } from '../snapshot/restore.ts';
import { compareBuilds, comparedRows } from './compare-builds.ts';
import type { Rebuilding, TableReport } from './compare-builds.ts';
import { carryOver } from './carry-over.ts';
import { assertLogIsComplete, replayTables, replayFold } from './replay.ts';
import type { Goal, OnRead, ReplayDeps } from './replay.ts';

export interface RebuildOptions {
  /** false: the shadow builds are filled and compared, and stay shadow builds. */
  readonly swap: boolean;
  readonly onProgress: (progress: RebuildProgress) => void;
}

export interface RebuildProgress {
  readonly phase: 'reading' | 'comparing' | 'waiting for writers' | 'swapping';
  /** Messages read and to be read, of this run. */
  readonly read: number;
  readonly total: number;
  /** What was compared so far. */
  readonly compared: {
    /** Rows of the shadow builds. */
    readonly rows: number;
    /** Ranges that differ, and the first of them. */
    readonly differences: number;
    readonly differing: readonly DifferingRange[];
  };
}

export interface DifferingRange {
  readonly table: string;
  /** The range as a person reads it. */
  readonly where: string;
  readonly served_rows: number;
  readonly rebuilt_rows: number;
}

const SHOWN_RANGES = 20;

export interface RebuildReport {
  readonly builds: readonly {
    readonly projection: string;
    readonly version: number;
    /** The previously served build; null: none was served. */
    readonly before: number | null;
    readonly after: number;
    /** True when an earlier run has filled a part of it. */
    readonly isResumed: boolean;
  }[];
  readonly messages: number;
  /** Time to fill the shadow builds, before they are compared. */
  readonly readMs: number;
  readonly tables: readonly TableReport[];
  readonly isSwapped: boolean;
  /** How long writers could not begin a batch; null when nothing was swapped. Readers never wait. */
  readonly heldMs: number | null;
}

/**
 * A replay that takes no longer than this may be repeated while writers wait. Counted from its first message: by default a
 * broker lets a new consumer group wait for 3 s, in which there are new blocks again (`group.initial.rebalance.delay.ms`).
 */
const CLOSE_MS = 3000;

/**
 * Rebuilds projections from the log alone, each into a shadow build beside the served one: fills it up to the checkpoints
 * of the served build, compares both while writers continue, and swaps them at one moment, for which writers wait while the
 * last messages are replayed. A projection that is new is filled up to the checkpoints of the others of its topic.
 * An interrupted rebuild resumes with its shadow builds. ClickHouse projections of one topic share one reading of it.
 *
 * @throws LOG_BEGINNING_GONE when messages of a topic that is kept for ever were deleted
 * @throws CONFLICT while another process rebuilds one of these projections
 * @throws MESSAGE_INVALID at a message that cannot be read and was not skipped
 */
export async function rebuild(
  deps: ReplayDeps,
  projections: readonly Projection[],
  { swap, onProgress }: RebuildOptions,
): Promise<RebuildReport> {
  for (const projection of projections) await assertRebuildable(deps, projection);
  const names = projections.map(({ name }) => name);
  return await withRebuildLock(deps.pool, names, async (assertHeld) => {
    const rebuilding: Rebuilding[] = [];
    // The shadow builds of sources first: those of deferred tables are derived from them.
    for (const projection of projections.toSorted((a, b) => Number(isDeferred(a)) - Number(isDeferred(b))))
      rebuilding.push(await openShadow(deps, projection, shadowsOf(rebuilding)));

    let read = 0;
    let total = await messagesLeft(deps, rebuilding);
    let phase: RebuildProgress['phase'] = 'reading';
    const tables: TableReport[] = [];
    let compared = comparedSoFar(tables);
    const report = (): void => onProgress({ phase, read, total: Math.max(read, total), compared });
    const enter = (next: RebuildProgress['phase']): void => {
      phase = next;
      report();
    };
    let firstReadAt: number | null = null;
    const onRead: OnRead = (messages) => {
      firstReadAt ??= deps.clock.now();
      read += messages;
      if (phase === 'reading') report();
    };
    const catchUp = async (): Promise<void> => {
      phase = 'reading';
      for (let tookMs = Infinity; tookMs > CLOSE_MS;) {
        firstReadAt = null;
        await replayAll(deps, rebuilding, onRead);
        const readAt = firstReadAt ?? deps.clock.now();
        await deriveShadows(deps, rebuilding);
        tookMs = deps.clock.now() - readAt;
        total = read + (await messagesLeft(deps, rebuilding));
      }
    };

    const beganAt = performance.now();
    await catchUp();
    const readMs = Math.round(performance.now() - beganAt);
    enter('comparing');
    for (const one of rebuilding) {
      const catchUpOne = async (): Promise<void> => {
        await replayAll(deps, isDeferred(one.projection) ? rebuilding : [one], onRead);
        await deriveShadows(deps, rebuilding, one);
      };
      for await (const table of compareBuilds(deps, one, shadowsOf(rebuilding), catchUpOne, onRead)) {
        tables.push(table);
        compared = comparedSoFar(tables);
        report();
      }
    }
    await catchUp();
    deps.signal.throwIfAborted();
    const heldMs = swap ? await swapShadows(deps, rebuilding, { assertHeld, onRead, enter }) : null;
    return {
      builds: rebuilding.map(({ projection, served, shadow, isResumed }) => ({
        projection: projection.name,
        version: shadow.version,
        before: served?.build ?? null,
        after: shadow.build,
        isResumed,
      })),
      messages: read,
      readMs,
      tables,
      isSwapped: swap,
      heldMs,
    };
  });
}

export function comparedSoFar(tables: readonly TableReport[]): RebuildProgress['compared'] {
  const differing = tables.flatMap(({ table, differing: ranges }) =>
    ranges.map(({ where, ours, theirs }) => ({
      table,
      where,
      served_rows: ours.rows,
      rebuilt_rows: theirs.rows,
    })),
  );
  return {
    rows: tables.reduce((sum, table) => sum + comparedRows(table), 0),
    differences: differing.length,
    differing: differing.slice(0, SHOWN_RANGES),
  };
}

async function assertRebuildable({ kafka }: ReplayDeps, projection: Projection): Promise<void> {
  if (projection.topic.retention !== 'forever') return;
  const isSnapshotted = projection.kind === 'postgres' && projection.isSnapshotted === true;
  if (isSnapshotted && (await newestSnapshot(kafka)) !== null) return;
  await assertLogIsComplete(kafka, projection.topic);
}

/** @param sources shadow builds that deferred tables are derived from instead of the served builds */
async function openShadow(
  deps: ReplayDeps,
  projection: Projection,
  sources: readonly Build[],
): Promise<Rebuilding> {
  const { kafka, clickhouse, pool } = deps;
  const served = await servedBuild(pool, projection);
  if (served === null && !(await needsRebuild(pool, projection))) {
    throw new AppError('NOT_FOUND', `${projection.name} has no build: run \`tds migrate\` to create it`);
  }
  const opened = await openShadowBuild(
    pool,
    clickhouse,
    projection,
    async (db, build) =>
      (await lostTable({ clickhouse, pool: db }, projection, build)) === null &&
      (await canResume(db, kafka, projection.topic, build)) &&
      (!isDeferred(projection) || (await hasRecordedSources(db, { projection, build, sources }))),
  );
  if (isDeferred(projection) && !opened.isResumed)
    await recordSources(pool, { projection, build: opened.shadow, sources });
  if (projection.kind === 'postgres') await restoreFromSnapshot(deps, projection, opened.shadow);
  if (projection.topic.retention !== 'forever') await carryOver(deps, projection, served, opened.shadow);
  return { projection, served, ...opened };
}

/** Replays the last messages and swaps, while writers wait. Returns for how long, in milliseconds. */
async function swapShadows(
  deps: ReplayDeps,
  rebuilding: readonly Rebuilding[],
  {
    assertHeld,
    onRead,
    enter,
  }: {
    assertHeld: () => Promise<void>;
    onRead: OnRead;
    enter: (phase: RebuildProgress['phase']) => void;
  },
): Promise<number> {
  enter('waiting for writers');
  const heldSince = performance.now();
  const names = rebuilding.map(({ projection }) => projection.name);
  const texts = {
    task: 'The swap',
    remedy: 'nothing was swapped; run the rebuild again to resume it',
  };
  return await withWritersStopped(deps.pool, names, texts, async (tx, late) => {
    enter('swapping');
    const signal = AbortSignal.any([deps.signal, late]);
    await replayAll({ ...deps, signal }, rebuilding, onRead);
    await deriveShadows({ ...deps, signal }, rebuilding);
    signal.throwIfAborted();
    // Without the rebuild lock, another process may have begun to fill these shadow builds.
    await assertHeld();
    await assertSources(tx, rebuilding);
    await swapBuilds(tx, rebuilding);
    return Math.round(performance.now() - heldSince);
  });
}

/** @throws CONFLICT when another process has swapped a source since deferred tables were derived from it */
async function assertSources(tx: Sql, rebuilding: readonly Rebuilding[]): Promise<void> {
  for (const { projection, shadow: build } of rebuilding) {
    if (!isDeferred(projection)) continue;
    if (await hasRecordedSources(tx, { projection, build, sources: shadowsOf(rebuilding) })) continue;
    throw new AppError(
      'CONFLICT',
      `${projection.name} was derived from builds that were replaced meanwhile: nothing was swapped; run the rebuild again`,
    );
  }
}

/**
 * Checkpoints of the served build; without a served build, those that every other projection of the topic has reached.
 * The ends of the log instead if the served build cannot go on: the log begins after its checkpoints, as when
 * PostgreSQL was restored from before a snapshot, or ends before them, as when Kafka has lost messages.
 */
async function goalOf({ kafka, pool }: ReplayDeps, { projection, served }: Rebuilding): Promise<Goal> {
  const { topic } = projection;
  const identity = await identifyLog(kafka, topic);
  if (served === null) return await lowestServed(pool, identity);
  if (await canResume(pool, kafka, topic, served))
    return await loadCheckpoints(pool, kafka, identity, served);
  return new Map((await kafka.offsets(topic)).map(({ partition, high }) => [partition, high]));
}

async function messagesLeft(deps: ReplayDeps, rebuilding: readonly Rebuilding[]): Promise<number> {
  const { kafka, pool } = deps;
  let left = 0;
  // Projections of one topic are read together.
  const byTopic = Map.groupBy(rebuilding, ({ projection }) => projection.topic);
  for (const [topic, together] of byTopic) {
    const identity = await identifyLog(kafka, topic);
    let most = 0;
    for (const one of together) {
      const from = await loadCheckpoints(pool, kafka, identity, one.shadow);
      const to = await goalOf(deps, one);
      const own = [...to].reduce(
        (sum, [partition, end]) => sum + Math.max(0, end - (from.get(partition) ?? 0)),
        0,
      );
      most = Math.max(most, own);
    }
    left += most;
  }
  return left;
}

const shadowsOf = (rebuilding: readonly Rebuilding[]): Build[] => rebuilding.map(({ shadow }) => shadow);

/**
 * Derives what is due of the deferred tables of one shadow build, or of all, from the tables that are served after the swap:
 * the shadow build of a source that is rebuilt with them.
 */
async function deriveShadows(
  deps: ReplayDeps,
  rebuilding: readonly Rebuilding[],
  only?: Rebuilding,
): Promise<void> {
  for (const { projection, shadow } of only === undefined ? rebuilding : [only]) {
    if (!isDeferred(projection)) continue;
    await deriveBuild(deps, { projection, build: shadow, sources: shadowsOf(rebuilding) });
  }
}

async function replayAll(deps: ReplayDeps, rebuilding: readonly Rebuilding[], onRead: OnRead): Promise<void> {
  // Projections of a stream whose served builds have the same checkpoints share one reading.
  const together = new Map<
    string,
    { goal: Goal; targets: { projection: ClickHouseProjection; build: Build }[] }
  >();
  for (const one of rebuilding) {
    const goal = await goalOf(deps, one);
    if (one.projection.kind === 'postgres') {
      await replayFold(deps, one.projection, one.shadow, goal, onRead);
      continue;
    }
    const place = JSON.stringify([one.projection.topic.name, ...[...goal].toSorted(([a], [b]) => a - b)]);
    const group = together.get(place) ?? { goal, targets: [] };
    group.targets.push({ projection: one.projection, build: one.shadow });
    together.set(place, group);
  }
  for (const { goal, targets } of together.values()) await replayTables(deps, targets, goal, onRead);
}
