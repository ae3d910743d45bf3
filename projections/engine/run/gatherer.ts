import type { Clock } from '../../../infra/clock.ts';
import type { Batch } from './batch.ts';
import type { Writer } from './writer.ts';

export interface GatherLimits {
  /** Rows of the largest table in one batch. */
  readonly rows: number;
  /** Encoded bytes of one batch. One is gathered while two are in flight: memory is three times this. */
  readonly bytes: number;
  /** Longest time that a message waits for a fuller batch, and that a batch waits for the rest of a repair. */
  readonly waitMs: number;
  /** Shortest time between two batches at the head, because many small inserts are expensive for ClickHouse. */
  readonly gapMs: number;
  /** A batch of more messages shows a backlog: at the end of the log the next batch then waits for `waitMs`, not for `gapMs`. */
  readonly backlogMessages: number;
  /** When nothing has followed the end of the log for so long, all that was read is finished without a pause. */
  readonly quietMs: number;
}

export interface Gatherer {
  /** Waits while the batch is full and the writer has no room. */
  ready(): Promise<void>;
  /** The batch being filled. Ask again after every await: a submitted batch must not be added to. */
  batch(): Batch;
  /** Called after adding to the batch. */
  added(): void;
  /**
   * Called at the end of the log: submits the batch as soon as the writer has room. While the log is being filled, it waits for
   * a fuller batch, or until nothing has followed for a while.
   */
  caughtUp(): void;
  /** Submits the batch, and resolves when nothing is in flight. */
  drain(): Promise<void>;
  /** Called when the writer has room again. */
  onRoom(): void;
  /** Drops the batch; the next run reads its messages again. */
  close(): void;
}

export const DEFAULT_LIMITS: GatherLimits = {
  rows: 50_000,
  bytes: 32_000_000,
  waitMs: 2000,
  gapMs: 150,
  backlogMessages: 16,
  quietMs: 300,
};

/** Submits a batch when it is full, when its first message has waited long enough, or at the end of the log. */
export function createGatherer(
  writer: Writer,
  newBatch: () => Batch,
  limits: GatherLimits,
  clock: Clock,
): Gatherer {
  let batch = newBatch();
  let lastLaunch = -Infinity;
  let gapMs = limits.gapMs;
  /** True while the batch waits only for room in the writer, or for the rest of a repair. */
  let due = false;
  let closed = false;

  /** Whether the batch waits for the rest of a repair: without it, the repaired block would not be indexed until the next batch. */
  const isHeld = (): boolean => !closed && batch.isOpen() && hold.isOn();
  const isFull = (): boolean => (batch.rows() >= limits.rows || batch.bytes() >= limits.bytes) && !isHeld();
  const launch = (): void => {
    timer.stop();
    hold.end();
    due = false;
    if (closed || batch.messages() === 0) return;
    lastLaunch = clock.now();
    gapMs = batch.messages() > limits.backlogMessages ? limits.waitMs : limits.gapMs;
    const full = batch;
    batch = newBatch();
    writer.submit(full);
  };
  const launchWhenRoom = (): void => {
    due = true;
    if (!isHeld() && writer.hasRoom()) launch();
  };
  const timer = createTimer(clock, launchWhenRoom);
  const hold = createHold(clock, limits.waitMs, () => {
    if (due) launchWhenRoom();
  });
  const quiet = createTimer(clock, () => {
    writer.setPaced(false);
    launchWhenRoom();
  });
  const arm = (at: number): void => {
    if (!due) timer.start(at);
  };

  return {
    async ready() {
      while (isFull()) {
        await writer.room();
        if (isFull() && writer.hasRoom()) launch();
      }
    },
    batch: () => batch,
    added() {
      quiet.stop();
      writer.setPaced(true);
      arm(clock.now() + limits.waitMs);
      if (due) launchWhenRoom();
    },
    caughtUp() {
      if (batch.messages() > 0) arm(lastLaunch + gapMs);
      quiet.start(clock.now() + limits.quietMs);
    },
    async drain() {
      while (batch.messages() > 0) {
        await writer.room();
        if (writer.hasRoom()) launch();
      }
      await writer.idle();
    },
    onRoom() {
      if (due || isFull()) launchWhenRoom();
    },
    close() {
      closed = true;
      timer.stop();
      hold.end();
      quiet.stop();
    },
  };
}

interface Hold {
  /** Begins at the first call. */
  isOn(): boolean;
  end(): void;
}

/** A hold of a batch until the rest of a repair comes, which it may never do: its writer may have been killed. */
function createHold(clock: Clock, maxMs: number, onOverdue: () => void): Hold {
  let isOverdue = false;
  const timer = createTimer(clock, () => {
    isOverdue = true;
    onOverdue();
  });
  return {
    isOn() {
      timer.start(clock.now() + maxMs);
      return !isOverdue;
    },
    end() {
      timer.stop();
      isOverdue = false;
    },
  };
}

interface Timer {
  /** Calls at this time, or at once when it has passed. An earlier time that is set already stands. */
  start(at: number): void;
  stop(): void;
}

function createTimer(clock: Clock, onTime: () => void): Timer {
  let set: { readonly at: number; readonly stopping: AbortController } | null = null;
  const stop = (): void => {
    set?.stopping.abort();
    set = null;
  };
  return {
    stop,
    start(at) {
      if (set !== null && set.at <= at) return;
      stop();
      const ms = at - clock.now();
      if (ms <= 0) return onTime();
      const stopping = new AbortController();
      set = { at, stopping };
      void clock.sleep(ms, stopping.signal).then(() => stopping.signal.aborted || onTime());
    },
  };
}
