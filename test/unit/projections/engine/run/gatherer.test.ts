import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { systemClock } from '../../../../../infra/clock.ts';
import type { Batch } from '../../../../../projections/engine/run/batch.ts';
import type { Writer } from '../../../../../projections/engine/run/writer.ts';
import { createGatherer } from '../../../../../projections/engine/run/gatherer.ts';

/** When a batch goes out. The writer has room for two. */
function setup() {
  const submitted: number[] = [];
  const woken: (() => void)[] = [];
  let inFlight = 0;
  let isPaced = true;
  let isOpen = false;
  const writer: Writer = {
    submit(batch) {
      inFlight += 1;
      submitted.push(batch.rows());
    },
    hasRoom: () => inFlight < 2,
    room: () => (inFlight < 2 ? Promise.resolve() : new Promise((resolve) => void woken.push(resolve))),
    setPaced: (next) => void (isPaced = next),
    idle: () => Promise.resolve(),
  };
  const counts = new WeakMap<Batch, number>();
  const newBatch = (): Batch => {
    const batch: Batch = {
      shares: [],
      add: () => {},
      skip: () => {},
      messages: () => counts.get(batch) ?? 0,
      rows: () => counts.get(batch) ?? 0,
      bytes: () => 10 * (counts.get(batch) ?? 0),
      isOpen: () => isOpen,
      moves: () => [],
    };
    return batch;
  };
  const gatherer = createGatherer(
    writer,
    newBatch,
    { rows: 5, bytes: 1000, waitMs: 1000, gapMs: 100, backlogMessages: 2, quietMs: 300 },
    { ...systemClock, now: Date.now },
  );
  return {
    submitted,
    gatherer,
    isPaced: () => isPaced,
    /** One row more, after which the batch is open or not. */
    add: async ({ opens = false } = {}): Promise<void> => {
      await gatherer.ready();
      const batch = gatherer.batch();
      isOpen = opens;
      counts.set(batch, (counts.get(batch) ?? 0) + 1);
      gatherer.added();
    },
    finishOne: (): void => {
      inFlight -= 1;
      for (const wake of woken.splice(0)) wake();
      gatherer.onRoom();
    },
  };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('createGatherer', () => {
  test('submits a batch at the end of the log, and the next one after the gap', async () => {
    const { gatherer, submitted, add } = setup();
    await add();
    gatherer.caughtUp();
    expect(submitted).toEqual([1]);
    await add();
    await add();
    gatherer.caughtUp();
    expect(submitted).toEqual([1]);
    await vi.advanceTimersByTimeAsync(100);
    expect(submitted).toEqual([1, 2]);
  });

  test('waits for a fuller batch at the end of the log after a batch of many messages', async () => {
    const { gatherer, submitted, add, finishOne } = setup();
    for (let row = 0; row < 3; row += 1) await add();
    gatherer.caughtUp();
    for (let row = 0; row < 4; row += 1) {
      await add();
      gatherer.caughtUp();
      await vi.advanceTimersByTimeAsync(249);
    }
    expect(submitted).toEqual([3]);
    await vi.advanceTimersByTimeAsync(4);
    expect(submitted).toEqual([3, 4]);
    finishOne();
    await vi.advanceTimersByTimeAsync(1000);
    await add();
    gatherer.caughtUp();
    expect(submitted).toEqual([3, 4, 1]);
    // After a small one it is that of the head again.
    finishOne();
    await add();
    gatherer.caughtUp();
    await vi.advanceTimersByTimeAsync(100);
    expect(submitted).toEqual([3, 4, 1, 1]);
  });

  test('submits what it has, and lets all be finished, when nothing follows the end of the log', async () => {
    const { gatherer, submitted, add, isPaced } = setup();
    for (let row = 0; row < 3; row += 1) await add();
    gatherer.caughtUp();
    await add();
    gatherer.caughtUp();
    await vi.advanceTimersByTimeAsync(299);
    expect(isPaced()).toBe(true);
    expect(submitted).toEqual([3]);
    await vi.advanceTimersByTimeAsync(1);
    expect(isPaced()).toBe(false);
    expect(submitted).toEqual([3, 1]);
    await add();
    expect(isPaced()).toBe(true);
  });

  test('submits a batch behind the head when it is full or has waited', async () => {
    const { submitted, add } = setup();
    for (let row = 0; row < 6; row += 1) await add();
    expect(submitted).toEqual([5]);
    await vi.advanceTimersByTimeAsync(999);
    expect(submitted).toEqual([5]);
    await vi.advanceTimersByTimeAsync(1);
    expect(submitted).toEqual([5, 1]);
  });

  test('submits a due batch when the writer has room, with all messages that came meanwhile', async () => {
    const { gatherer, submitted, add, finishOne } = setup();
    for (let batch = 0; batch < 2; batch += 1) {
      await add();
      gatherer.caughtUp();
      vi.advanceTimersByTime(100);
    }
    for (let row = 0; row < 3; row += 1) {
      await add();
      gatherer.caughtUp();
      vi.advanceTimersByTime(200);
    }
    expect(submitted).toEqual([1, 1]);
    finishOne();
    expect(submitted).toEqual([1, 1, 3]);
  });

  test('waits before adding to a full batch while two are in flight', async () => {
    const { submitted, add, finishOne } = setup();
    for (let row = 0; row < 15; row += 1) await add();
    expect(submitted).toEqual([5, 5]);
    let added = false;
    const adding = add().then(() => {
      added = true;
    });
    await vi.advanceTimersByTimeAsync(60_000);
    expect(added).toBe(false);
    finishOne();
    await adding;
    expect(submitted).toEqual([5, 5, 5]);
  });

  test('keeps the two halves of a repair in one batch when the batch is full or has waited', async () => {
    const { submitted, add } = setup();
    for (let row = 0; row < 4; row += 1) await add();
    await add({ opens: true });
    await add();
    await add({ opens: true });
    expect(submitted).toEqual([6]);
    await vi.advanceTimersByTimeAsync(1000);
    expect(submitted).toEqual([6]);
    await add();
    expect(submitted).toEqual([6, 2]);
  });

  test('submits half of a repair when the other half does not follow', async () => {
    const { submitted, gatherer, add, finishOne } = setup();
    await add({ opens: true });
    gatherer.caughtUp();
    await vi.advanceTimersByTimeAsync(999);
    expect(submitted).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(submitted).toEqual([1]);
    finishOne();
    for (let row = 0; row < 5; row += 1) await add({ opens: true });
    await vi.advanceTimersByTimeAsync(2000);
    expect(submitted).toEqual([1, 5]);
  });

  test('submits nothing after it was closed', async () => {
    const { gatherer, submitted, add } = setup();
    await add();
    gatherer.close();
    await vi.advanceTimersByTimeAsync(5000);
    gatherer.onRoom();
    expect(submitted).toEqual([]);
  });
});
