import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { isClickHouseUnavailable } from '../../../infra/clickhouse/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { LogIdentity } from '../../../infra/kafka/checkpoints.ts';
import type { Batch, Share, Target } from './batch.ts';
import type { Reading } from './readings.ts';
import { isInsertedLast, withNames } from '../../define.ts';
import type { ServedLock } from '../served-lock.ts';
import { createStoreRetry } from '../store-retry.ts';
import type { StoreRetryDeps } from '../store-retry.ts';
import type { ProjectionState } from '../state.ts';

/**
 * The next round begins after this many times the last one's duration. Deriving reads a whole range of heights for the few
 * that a batch touched, so it is done once for many batches while they follow each other closely, as in a backfill.
 */
const PAUSE_FACTOR = 4;
/** No pause follows a round of at most this many messages: they are new blocks at the head, which clients wait for. */
const UNPAUSED_MESSAGES = 4;
/** Longest pause, in milliseconds: the backfill's progress and checkpoints are at most this late. */
const MAX_PAUSE_MS = 3000;

/** A batch whose base rows are acknowledged. */
export interface InsertedBatch {
  readonly batch: Batch;
  /** Released when the batch is finished. */
  readonly lock: ServedLock;
}

/**
 * Completes batches in rounds: derived tables, then the rows that say what is indexed, then what is derived for later readers,
 * then checkpoints.
 */
export interface Finisher {
  /** Takes a batch; the base rows of all earlier ones are acknowledged as well. Throws after a failed round. */
  add(inserted: InsertedBatch): void;
  /** Batches that are not finished. */
  waiting(): number;
  /** Whether there are pauses between rounds; true at first. */
  setPaced(isPaced: boolean): void;
  /** Finishes without further pauses; resolves when nothing is waiting. */
  idle(): Promise<void>;
}

export interface FinisherDeps extends StoreRetryDeps {
  readonly clickhouse: Pick<ClickHouse, 'insertEncoded' | 'command'>;
  readonly state: Pick<ProjectionState, 'move'>;
  readonly identity: LogIdentity;
  /** Called when blocks were indexed or reverted; null: the builds are not served. */
  readonly announceIndexed: (() => Promise<void>) | null;
  /** Called on a checkpoint conflict: another process has moved it. */
  onRefused(reading: Reading): void;
  /** Called when a round begins: later batches are in another one. */
  onRound(): void;
  onFinished(): void;
  onFatal(error: unknown): void;
}

export function createFinisher(deps: FinisherDeps): Finisher {
  const { clock, signal } = deps;
  const finish = createRound(deps);
  let batches: InsertedBatch[] = [];
  let unfinished = 0;
  let failure: unknown = null;
  let running: Promise<void> | null = null;
  let dueAt = -Infinity;
  /** Aborted while there are no pauses. */
  let hurry = new AbortController();

  const round = async (): Promise<void> => {
    const pauseMs = dueAt - clock.now();
    if (pauseMs > 0) await clock.sleep(pauseMs, AbortSignal.any([signal, hurry.signal]));
    const taken = batches;
    batches = [];
    const began = clock.now();
    deps.onRound();
    try {
      await finish(taken);
    } finally {
      await Promise.all(taken.map(({ lock }) => lock.release()));
      unfinished -= taken.length;
    }
    const messages = taken.reduce((sum, { batch }) => sum + batch.messages(), 0);
    const factor = messages > UNPAUSED_MESSAGES ? PAUSE_FACTOR : 0;
    dueAt = clock.now() + Math.min(MAX_PAUSE_MS, factor * (clock.now() - began));
    deps.onFinished();
  };
  const run = async (): Promise<void> => {
    try {
      while (batches.length > 0) await round();
    } catch (error) {
      // Nothing may be written after a gap: the run ends.
      failure = error;
      await Promise.all(batches.map(({ lock }) => lock.release()));
      if (!signal.aborted) deps.onFatal(error);
    } finally {
      running = null;
    }
  };

  return {
    add(inserted) {
      if (failure !== null) throw failure;
      batches.push(inserted);
      unfinished += 1;
      running ??= run();
    },
    waiting: () => unfinished,
    setPaced(isPaced) {
      if (!isPaced) hurry.abort();
      else if (hurry.signal.aborted) hurry = new AbortController();
    },
    async idle() {
      hurry.abort();
      await running;
      hurry = new AbortController();
    },
  };
}

/** The steps of a round, each idempotent. */
function createRound(deps: FinisherDeps): (round: readonly InsertedBatch[]) => Promise<void> {
  const { clickhouse, state, identity, metrics, announceIndexed } = deps;
  const insert = createInsert(deps);
  const onClickHouse = createStoreRetry('clickhouse', deps, isClickHouseUnavailable);
  const onPostgres = createStoreRetry('postgres', deps);

  const derive = async ({ projection, build }: Target, shares: readonly Share[]): Promise<void> => {
    const touched = touchedBy(shares);
    if (projection.derive === undefined || touched.length === 0) return;
    const done = metrics.deriveSeconds.startTimer({ projection: projection.name });
    for (const { sql, params } of projection.derive(touched)) {
      await onClickHouse(() => clickhouse.command(withNames(sql, build.names), { params }));
    }
    done();
  };

  const moveCheckpoints = async (batch: Batch): Promise<void> => {
    const planned = batch.moves();
    const moves = planned.map(({ move }) => move);
    const refused = new Set(await onPostgres(() => state.move(identity, moves)));
    for (const { move, reading } of planned) {
      if (!refused.has(move)) {
        reading.stored.set(move.build, move.next);
        metrics.messages.inc({ projection: move.build.projection }, move.next - move.expected);
      } else if (reading.current) {
        reading.current = false;
        deps.onRefused(reading);
      }
    }
  };

  return async (round) => {
    const shares = round.flatMap(({ batch }) => batch.shares);
    const byTarget = [...Map.groupBy(shares, ({ target }) => target)];
    const [last, first] = partition(byTarget, ([target]) => isInsertedLast(target.projection));
    const [early, late] = partition(
      first,
      ([{ projection }, of]) => projection.isDerivedLast?.(touchedBy(of)) !== true,
    );
    const deriveAll = async (targets: typeof first): Promise<void> =>
      await allOf(targets.map(async ([target, of]) => await derive(target, of)));
    await deriveAll(early);
    // The process was frozen, and the served builds may have changed: read and write the messages again.
    if (round.some(({ lock }) => lock.isLost()))
      throw new AppError('BUILD_RETIRED', 'The lock on the served builds was lost');
    for (const [target, of] of last) {
      await insert(of);
      // These rows can be read now; readers of what is derived from them retry until it is there.
      await allOf([
        announceIndexed === null ? Promise.resolve() : onPostgres(announceIndexed),
        derive(target, of),
      ]);
    }
    await deriveAll(late);
    for (const { batch } of round) await moveCheckpoints(batch);
  };
}

/** Inserts the rows of shares of one target. */
export function createInsert(
  deps: Pick<FinisherDeps, 'clickhouse' | keyof StoreRetryDeps>,
): (shares: readonly Share[]) => Promise<void> {
  const { clickhouse, metrics } = deps;
  const onClickHouse = createStoreRetry('clickhouse', deps, isClickHouseUnavailable);
  return async (shares) => {
    const [first] = shares;
    if (first === undefined) return;
    const { projection, build } = first.target;
    const inserts = [...first.tables].map(async ([placeholder, { columns }]) => {
      const encoders = shares.flatMap(({ tables }) => tables.get(placeholder) ?? []);
      const rows = encoders.reduce((sum, encoder) => sum + encoder.rows, 0);
      if (rows === 0) return;
      const parts = encoders.map((encoder) => ({ encoder, bytes: encoder.take() }));
      const bytes = joined(parts.map((part) => part.bytes));
      const done = metrics.insertSeconds.startTimer({ projection: projection.name });
      const table = withNames(`{{${placeholder}}}`, build.names);
      await onClickHouse(() => clickhouse.insertEncoded(table, columns, bytes));
      done();
      for (const part of parts) part.encoder.release(part.bytes);
      metrics.rows.inc({ projection: projection.name }, rows);
    });
    await allOf(inserts);
  };
}

const touchedBy = (shares: readonly Share[]): unknown[] => shares.flatMap((share) => share.touched);

/** Those that meet a condition, and the others. */
function partition<T>(all: readonly T[], meets: (one: T) => boolean): [T[], T[]] {
  return [all.filter(meets), all.filter((one) => !meets(one))];
}

function joined(parts: readonly Buffer[]): Buffer {
  const [only] = parts;
  return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts);
}

/** Waits for all, then throws the first failure: nothing is in flight when it throws. */
export async function allOf(works: readonly Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(works)) {
    if (result.status === 'rejected') throw result.reason;
  }
}
