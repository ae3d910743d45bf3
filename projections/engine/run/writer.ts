import { createBatchLocks } from './batch-locks.ts';
import type { BatchLockDeps } from './batch-locks.ts';
import type { Batch } from './batch.ts';
import { isInsertedLast } from '../../define.ts';
import { allOf, createFinisher, createInsert } from './finisher.ts';
import type { FinisherDeps } from './finisher.ts';

/** Two concurrent inserts give the highest throughput; more only use more memory. */
const IN_FLIGHT = 2;
/** Bounds what is read and written again after a crash. */
const MAX_UNFINISHED = 16;

export interface Writer {
  /** Starts writing a batch. Its checkpoints move when it and every batch before it are written. */
  submit(batch: Batch): void;
  hasRoom(): boolean;
  /** Resolves when there is room. */
  room(): Promise<void>;
  /** Whether pauses between rounds gather more batches; true at first. */
  setPaced(isPaced: boolean): void;
  /** Resolves when nothing is in flight. */
  idle(): Promise<void>;
}

export interface WriterDeps extends Omit<FinisherDeps, 'onRound' | 'onFinished'>, BatchLockDeps {
  onRoom(): void;
}

/**
 * Writes batches: the base rows of up to two at once, everything that depends on order one round after the other
 * (finisher.ts). Removals are written first. A round writes derived tables, then the rows that say what is
 * indexed, then what is derived for later readers, then checkpoints. So a checkpoint never moves over a gap, and totals never
 * lead what can be queried. Every part is idempotent.
 */
export function createWriter(deps: WriterDeps): Writer {
  const { metrics, signal } = deps;
  const locks = createBatchLocks(deps);
  const insert = createInsert(deps);
  /** In this order: a reader that does not find a block finds that it was reverted. */
  const insertRemovals = async ({ shares }: Batch): Promise<void> => {
    const byOrder = Map.groupBy(shares, ({ target }) => isInsertedLast(target.projection));
    for (const isLast of [false, true])
      await allOf((byOrder.get(isLast) ?? []).map((share) => insert([{ ...share, tables: share.removals }])));
  };
  let inFlight = 0;
  let tail: Promise<void> = Promise.resolve();
  let removals: Promise<void> = Promise.resolve();
  let freed = Promise.withResolvers<void>();

  const wake = (): void => {
    freed.resolve();
    freed = Promise.withResolvers();
  };
  const makeRoom = (): void => {
    if (!hasRoom()) return;
    wake();
    deps.onRoom();
  };
  const finisher = createFinisher({ ...deps, onRound: () => locks.renew(), onFinished: makeRoom });
  const hasRoom = (): boolean => inFlight < IN_FLIGHT && finisher.waiting() < MAX_UNFINISHED;
  signal.addEventListener('abort', wake, { once: true });

  /** @param before resolves when the base rows of every earlier batch are written */
  const write = async (batch: Batch, before: Promise<void>): Promise<void> => {
    const held = locks.take(batch);
    const first = batch.shares.filter(({ target }) => !isInsertedLast(target.projection));
    // After the removals of every earlier batch: rows of this batch may take the place of the blocks that those remove.
    const ready = Promise.all([held, removals]).then(() => insertRemovals(batch));
    removals = ready;
    const inserting = [ready, ...first.map((share) => ready.then(() => insert([share])))];
    for (const inserted of inserting) inserted.catch(() => {}); // reported below
    try {
      await before;
      await allOf(inserting);
      finisher.add({ batch, lock: await held });
    } catch (error) {
      // After an earlier batch has failed, wait for this one's inserts before releasing the lock.
      await Promise.allSettled(inserting);
      await (await held.catch(() => null))?.release();
      // Nothing may be written after a gap: the run ends.
      if (!signal.aborted) deps.onFatal(error);
      throw error;
    }
    inFlight -= 1;
    makeRoom();
  };

  return {
    submit(batch) {
      inFlight += 1;
      metrics.batchRows.observe(batch.rows());
      tail = write(batch, tail);
      tail.catch(() => {});
    },
    hasRoom,
    async room() {
      while (!hasRoom()) {
        signal.throwIfAborted();
        await freed.promise;
      }
      signal.throwIfAborted();
    },
    setPaced: (isPaced) => finisher.setPaced(isPaced),
    async idle() {
      await tail.catch(() => {});
      await finisher.idle();
    },
  };
}
