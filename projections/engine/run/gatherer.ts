import type { Clock } from '../../../infra/clock.ts';
import type { Batch } from './batch.ts';
import type { Writer } from './writer.ts';

export interface GatherLimits {
  /** Rows of the largest table in one batch. */
  readonly rows: number;
  /** Encoded bytes of one batch; one is gathered while two are in flight, so three times this is held at most. */
  readonly bytes: number;
  /** Longest wait of a message for a fuller batch, behind the head. */
  readonly waitMs: number;
  /** Shortest time between two batches at the head: many small inserts cost ClickHouse more than they give. */
  readonly gapMs: number;
}

export interface Gatherer {
  /** Waits while the batch is full and ClickHouse has all it can take. */
  ready(): Promise<void>;
  /** The batch that is being filled. Another one after any pause: what was written must not be added to. */
  batch(): Batch;
  /** Something was added. */
  added(): void;
  /** Nothing more is in the log: what is gathered goes out as soon as there is room. */
  caughtUp(): void;
  /** Writes what is gathered, and resolves when nothing is in flight any more. */
  drain(): Promise<void>;
  /** The writer has room again. */
  roomMade(): void;
  /** What is gathered stays unwritten: the next run reads it again. */
  close(): void;
}

/** Decides when a batch is done: when it is full, when it has waited long enough, or when there is nothing to wait for. */
export function createGatherer(
  writer: Writer,
  newBatch: (before?: Batch) => Batch,
  limits: GatherLimits,
  clock: Clock,
): Gatherer {
  let batch = newBatch();
  let lastLaunch = -Infinity;
  /** It is time; only room is missing. */
  let due = false;
  let closed = false;
  let timer: { readonly at: number; readonly stop: AbortController } | null = null;

  const isFull = (): boolean => batch.rows() >= limits.rows || batch.bytes() >= limits.bytes;
  const disarm = (): void => {
    timer?.stop.abort();
    timer = null;
  };
  const launch = (): void => {
    disarm();
    due = false;
    if (closed || batch.messages() === 0) return;
    lastLaunch = clock.now();
    const full = batch;
    batch = newBatch(full);
    writer.submit(full);
  };
  const launchWhenRoom = (): void => {
    if (writer.hasRoom()) launch();
    else due = true;
  };
  const arm = (at: number): void => {
    if (due || (timer !== null && timer.at <= at)) return;
    disarm();
    const ms = at - clock.now();
    if (ms <= 0) launchWhenRoom();
    else {
      const stop = new AbortController();
      timer = { at, stop };
      void clock.sleep(ms, stop.signal).then(() => stop.signal.aborted || launchWhenRoom());
    }
  };

  return {
    async ready() {
      while (isFull()) {
        await writer.room();
        if (isFull() && writer.hasRoom()) launch();
      }
    },
    batch: () => batch,
    added: () => arm(clock.now() + limits.waitMs),
    caughtUp() {
      if (batch.messages() > 0) arm(lastLaunch + limits.gapMs);
    },
    async drain() {
      while (batch.messages() > 0) {
        await writer.room();
        if (writer.hasRoom()) launch();
      }
      await writer.idle();
    },
    roomMade() {
      if (due || isFull()) launch();
    },
    close() {
      closed = true;
      disarm();
    },
  };
}
