import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { isClickHouseUnavailable } from '../../../infra/clickhouse/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { LogIdentity } from '../../../infra/kafka/checkpoints.ts';
import type { Batch, Share } from './batch.ts';
import type { Reading } from './readings.ts';
import { withNames } from '../../define.ts';
import type { ServedLock } from '../served-lock.ts';
import { createStoreRetry } from '../store-retry.ts';
import type { StoreRetryDependencies } from '../store-retry.ts';
import type { ProjectionState } from '../state.ts';

/** Two concurrent inserts give the highest throughput; more only use more memory. */
const IN_FLIGHT = 2;

export interface Writer {
  /** Starts writing a batch. Its checkpoints move when it and every batch before it are written. */
  submit(batch: Batch): void;
  hasRoom(): boolean;
  /** Resolves when there is room. */
  room(): Promise<void>;
  /** Resolves when nothing is in flight. */
  idle(): Promise<void>;
}

export interface WriterDependencies extends StoreRetryDependencies {
  readonly clickhouse: Pick<ClickHouse, 'insertEncoded' | 'command'>;
  readonly state: Pick<ProjectionState, 'move'>;
  /** Takes the lock that a swap of served builds waits for; null for shadow builds. */
  readonly hold: ProjectionState['hold'] | null;
  readonly identity: LogIdentity;
  /** Called on a checkpoint conflict: another process has moved it. */
  onRefused(reading: Reading): void;
  onRoom(): void;
  onFatal(error: unknown): void;
}

/**
 * Writes batches: the rows of up to two at once, everything that depends on order one batch after the other. A batch
 * writes base rows, then derived tables, then the rows that say what is indexed, then checkpoints. So a checkpoint never
 * moves over a gap, and totals never lead what can be queried. Every part is idempotent.
 */
export function createWriter(dependencies: WriterDependencies): Writer {
  const { metrics, signal } = dependencies;
  const lock = createLockQueue(dependencies);
  const { insert, finish } = createBatchSteps(dependencies);
  let inFlight = 0;
  let tail: Promise<void> = Promise.resolve();
  let freed = Promise.withResolvers<void>();

  const wake = (): void => {
    freed.resolve();
    freed = Promise.withResolvers();
  };
  signal.addEventListener('abort', wake, { once: true });

  /** @param before resolves when every earlier batch is written */
  const write = async (batch: Batch, before: Promise<void>): Promise<void> => {
    const held = lock(batch);
    const release = async (): Promise<void> => await (await held.catch(() => null))?.release();
    const first = batch.shares.filter(({ target }) => target.projection.insertLast !== true);
    const inserting = new Map(first.map((share) => [share, held.then(() => insert(share))]));
    for (const inserted of inserting.values()) inserted.catch(() => {}); // reported by `finish`
    try {
      await before;
      await finish(batch, inserting, await held);
    } catch (error) {
      // After an earlier batch has failed, wait for this one's inserts before releasing the lock.
      await Promise.allSettled(inserting.values());
      await release();
      // Nothing may be written after a gap: the run ends.
      if (!signal.aborted) dependencies.onFatal(error);
      throw error;
    }
    await release();
    inFlight -= 1;
    wake();
    dependencies.onRoom();
  };

  return {
    submit(batch) {
      inFlight += 1;
      metrics.batchRows.observe(batch.rows());
      tail = write(batch, tail);
      tail.catch(() => {});
    },
    hasRoom: () => inFlight < IN_FLIGHT,
    async room() {
      signal.throwIfAborted();
      if (inFlight < IN_FLIGHT) return;
      await freed.promise;
      signal.throwIfAborted();
    },
    idle: () => tail.catch(() => {}),
  };
}

/** One lock after the other: a later batch must not hold a lock that a swap, for which this one waits, waits for. */
function createLockQueue(dependencies: WriterDependencies): (batch: Batch) => Promise<ServedLock | null> {
  const { hold } = dependencies;
  const onPostgres = createStoreRetry('postgres', dependencies);
  let holding: Promise<unknown> = Promise.resolve();
  return (batch) => {
    if (hold === null) return Promise.resolve(null);
    const builds = batch.shares.map(({ target }) => target.build);
    const held = holding.then(() => onPostgres(() => hold(builds)));
    holding = held.catch(() => {});
    return held;
  };
}

interface BatchSteps {
  /** Inserts the base rows of a share. */
  readonly insert: (share: Share) => Promise<void>;
  /**
   * Waits for the inserts under way, then writes what depends on them and moves the checkpoints. Called when every earlier
   * batch is written.
   */
  readonly finish: (
    batch: Batch,
    inserting: ReadonlyMap<Share, Promise<void>>,
    held: ServedLock | null,
  ) => Promise<void>;
}

function createBatchSteps(dependencies: WriterDependencies): BatchSteps {
  const { clickhouse, state, identity, metrics } = dependencies;
  const onClickHouse = createStoreRetry('clickhouse', dependencies, isClickHouseUnavailable);
  const onPostgres = createStoreRetry('postgres', dependencies);

  const insert = async ({ target: { projection, build }, tables }: Share): Promise<void> => {
    const inserts = [...tables].map(async ([placeholder, encoder]) => {
      const { rows, columns } = encoder;
      if (rows === 0) return;
      const bytes = encoder.take();
      const done = metrics.insertSeconds.startTimer({ projection: projection.name });
      const table = withNames(`{{${placeholder}}}`, build.names);
      await onClickHouse(() => clickhouse.insertEncoded(table, columns, bytes));
      done();
      metrics.rows.inc({ projection: projection.name }, rows);
    });
    await allOf(inserts);
  };

  const derive = async ({ target: { projection, build }, touched }: Share): Promise<void> => {
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
        dependencies.onRefused(reading);
      }
    }
  };

  const finish: BatchSteps['finish'] = async (batch, inserting, held) => {
    await allOf(
      [...inserting].map(async ([share, inserted]) => {
        await inserted;
        await derive(share);
      }),
    );
    // The process was frozen, and the served builds may have changed: read and write the messages again.
    if (held?.isLost() === true)
      throw new AppError('BUILD_RETIRED', 'The lock on the served builds was lost');
    for (const share of batch.shares.filter((one) => !inserting.has(one))) {
      await insert(share);
      await derive(share);
    }
    await moveCheckpoints(batch);
  };

  return { insert, finish };
}

/** Waits for all, then throws the first failure: nothing is in flight when it throws. */
async function allOf(works: readonly Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(works)) {
    if (result.status === 'rejected') throw result.reason;
  }
}
