import { AppError } from '../../../schemas/errors.ts';
import { withRebuildLock, needsRebuild, openShadowBuild, swapBuilds, servedBuild } from '../builds.ts';
import type { Build } from '../builds.ts';
import { identifyLog } from '../../../infra/kafka/checkpoints.ts';
import { canResume, loadCheckpoints } from '../checkpoints.ts';
import { lowestServed } from '../../progress.ts';
import type { ClickHouseProjection, Projection } from '../../define.ts';
import { withSwapLock } from '../served-lock.ts';
import { restoreFromSnapshot, newestSnapshot } from '../snapshot/restore.ts';
import { compareBuilds } from './compare-builds.ts';
import type { Rebuilding, TableReport } from './compare-builds.ts';
import { carryOver } from './carry-over.ts';
import { assertLogIsComplete, replayTables, replayFold } from './replay.ts';
import type { Goal, OnRead, ReplayDeps } from './replay.ts';

export interface RebuildOptions {
  /** false: the shadows are filled and compared, and stay shadows. */
  readonly swap: boolean;
  readonly onProgress: (progress: RebuildProgress) => void;
}

export interface RebuildProgress {
  readonly phase: 'reading' | 'comparing' | 'waiting for writers' | 'swapping';
  /** Messages read and to be read, of this run. */
  readonly read: number;
  readonly total: number;
}

export interface RebuildReport {
  readonly builds: readonly {
    readonly projection: string;
    readonly version: number;
    /** The build that was served before; null: none was. */
    readonly before: number | null;
    readonly after: number;
    /** Filled in part by an earlier run. */
    readonly isResumed: boolean;
  }[];
  readonly messages: number;
  /** From the first message to the last row of the shadows, before they are compared. */
  readonly readMs: number;
  readonly tables: readonly TableReport[];
  readonly isSwapped: boolean;
  /** How long writers could not begin a batch; null when nothing was swapped. Readers are not held. */
  readonly heldMs: number | null;
}

/** Caught up with the served build in so short a time, the rest is read while the writers are held. */
const CLOSE_MS = 3000;
/** Then a swap is given up, whose writers wait: a store may be away. */
const LONGEST_HOLD_MS = 60_000;

/**
 * Builds projections anew from the log alone, each into a shadow beside the build that is served: read up to where the
 * served one stands, compared with it, and put in its place in one moment. One that is new is read up to where the others
 * of its topic stand. May be ended anywhere and started again, and goes on with the shadow. A stream is read once
 * for all ClickHouse projections that are made from it.
 *
 * Throws `LOG_BEGINNING_GONE` where messages of a topic that is kept for ever were deleted, `CONFLICT` while another process
 * rebuilds one of these, `MESSAGE_INVALID` at a message that cannot be read and was not skipped.
 */
export async function rebuild(
  deps: ReplayDeps,
  projections: readonly Projection[],
  { swap, onProgress }: RebuildOptions,
): Promise<RebuildReport> {
  const { kafka, clickhouse, pool } = deps;
  for (const projection of projections) {
    const isKept =
      projection.kind === 'postgres' &&
      projection.isSnapshotted === true &&
      (await newestSnapshot(kafka)) !== null;
    if (!isKept && projection.topic.retention === 'forever')
      await assertLogIsComplete(kafka, projection.topic);
  }
  const names = projections.map(({ name }) => name);
  return await withRebuildLock(pool, names, async (assertHeld) => {
    const rebuilding: Rebuilding[] = [];
    for (const projection of projections) {
      const served = await servedBuild(pool, projection);
      if (served === null && !(await needsRebuild(pool, projection))) {
        throw new AppError('NOT_FOUND', `${projection.name} has never been built: \`tds migrate\` begins it`);
      }
      const opened = await openShadowBuild(pool, clickhouse, projection, (db, shadow) =>
        canResume(db, kafka, projection.topic, shadow),
      );
      if (projection.kind === 'postgres') await restoreFromSnapshot(deps, projection, opened.shadow);
      if (projection.topic.retention !== 'forever') await carryOver(deps, projection, served, opened.shadow);
      rebuilding.push({ projection, served, ...opened });
    }

    let read = 0;
    let total = await messagesLeft(deps, rebuilding);
    let phase: RebuildProgress['phase'] = 'reading';
    /** Buckets that were read about since a comparison began. */
    const touched = new Set<number>();
    const say = (): void => onProgress({ phase, read, total: Math.max(read, total) });
    const onRead = (messages: number, bucket?: number): void => {
      read += messages;
      if (bucket !== undefined) touched.add(bucket);
      if (phase === 'reading') say();
    };

    const catchUp = async (): Promise<void> => {
      phase = 'reading';
      for (let tookMs = Infinity; tookMs > CLOSE_MS;) {
        const since = performance.now();
        await replayAll(deps, rebuilding, onRead);
        tookMs = performance.now() - since;
        total = read + (await messagesLeft(deps, rebuilding));
      }
    };

    const beganAt = performance.now();
    await catchUp();
    const readMs = Math.round(performance.now() - beganAt);
    touched.clear();
    phase = 'comparing';
    say();
    const readFirst = read;
    const first = await compareBuilds(deps, rebuilding, null);
    await catchUp();

    phase = 'waiting for writers';
    say();
    deps.signal.throwIfAborted();
    let heldMs: number | null = null;
    // New batches wait from here on.
    const heldSince = performance.now();
    const tables = await withSwapLock(pool, names, (tx) =>
      notForLong(deps, async (held) => {
        phase = 'swapping';
        say();
        await replayAll(held, rebuilding, onRead);
        // Both stand at the same offset now, with nothing in flight.
        const last = await compareBuilds(held, rebuilding, { first, touched, messages: read - readFirst });
        held.signal.throwIfAborted();
        if (swap) {
          // Without the lock another process may have begun with these shadows.
          await assertHeld();
          await swapBuilds(tx, rebuilding);
          heldMs = Math.round(performance.now() - heldSince);
        }
        return last;
      }),
    );
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

/** Runs `work` with a signal that fires when writers have waited for long enough. */
async function notForLong<T>(deps: ReplayDeps, work: (deps: ReplayDeps) => Promise<T>): Promise<T> {
  const late = new AbortController();
  const timer = setTimeout(() => {
    const seconds = LONGEST_HOLD_MS / 1000;
    late.abort(
      new AppError(
        'CONFLICT',
        `The swap took over ${seconds} s: nothing was swapped; run the rebuild again to resume it`,
      ),
    );
  }, LONGEST_HOLD_MS);
  try {
    return await work({ ...deps, signal: AbortSignal.any([deps.signal, late.signal]) });
  } finally {
    clearTimeout(timer);
  }
}

/** Where the served build stands is where its shadow has to go; with none, where all others of the topic have been. */
async function goalOf({ kafka, pool }: ReplayDeps, { projection, served }: Rebuilding): Promise<Goal> {
  const identity = await identifyLog(kafka, projection.topic);
  return served === null
    ? await lowestServed(pool, identity)
    : await loadCheckpoints(pool, kafka, identity, served);
}

async function messagesLeft(deps: ReplayDeps, rebuilding: readonly Rebuilding[]): Promise<number> {
  const { kafka, pool } = deps;
  let left = 0;
  /** Projections of one topic are read together. */
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

async function replayAll(deps: ReplayDeps, rebuilding: readonly Rebuilding[], onRead: OnRead): Promise<void> {
  // Served builds that stand at the same place of a stream are caught up with in one reading.
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
