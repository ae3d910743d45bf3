import { Readable } from 'node:stream';

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { createPacing } from '../../../../api/http/pacing.ts';

beforeEach(
  () =>
    void vi.useFakeTimers({
      toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'],
    }),
);
afterEach(() => void vi.useRealTimers());

const ROW_BYTES = 10;
const ROWS = 10_000;
/** A file of chunks of ten rows. */
const file = (rows = ROWS): Readable =>
  Readable.from(
    Array.from({ length: rows / 10 }, () => Buffer.alloc(10 * ROW_BYTES)),
    { objectMode: false },
  );

/** Counts the rows that a reader takes as fast as it can. */
function reading(stream: Readable): {
  readonly rows: () => number;
  readonly isEnded: () => boolean;
} {
  let bytes = 0;
  stream.on('data', (chunk: Buffer) => void (bytes += chunk.length));
  return { rows: () => bytes / ROW_BYTES, isEnded: () => stream.readableEnded };
}

/** Lets streams pass on what they have, then the time pass. */
async function pass(ms: number): Promise<void> {
  for (let spent = 0; spent <= ms; spent += 50) {
    for (let turn = 0; turn < 3000; turn += 1) await new Promise((resolve) => process.nextTick(resolve));
    if (spent < ms) await vi.advanceTimersByTimeAsync(50);
  }
}

test('a file is sent at once while no page is read', async () => {
  const pacing = createPacing(100);
  await pacing.during(async () => {});
  await vi.advanceTimersByTimeAsync(1000);
  const { rows, isEnded } = reading(pacing.paced(file(), ROW_BYTES));
  await pass(0);
  await pass(0);
  expect(rows()).toBe(ROWS);
  expect(isEnded()).toBe(true);
});

test('files together have the rate while pages are read, and shortly after', async () => {
  const pacing = createPacing(1000);
  const page = Promise.withResolvers<void>();
  void pacing.during(() => page.promise);
  const files = [file(), file()].map((one) => reading(pacing.paced(one, ROW_BYTES)));
  const sent = (): number => files.reduce((sum, { rows }) => sum + rows(), 0);
  await pass(4000);
  // Half a second ahead.
  expect(sent()).toBeGreaterThan(3500);
  expect(sent()).toBeLessThan(5000);
  page.resolve();
  await pass(300);
  expect(sent()).toBeLessThan(5500);
  await pass(1000);
  expect(sent()).toBe(2 * ROWS);
});

test('what was sent while no page was read is no debt', async () => {
  const pacing = createPacing(1000);
  const first = reading(pacing.paced(file(), ROW_BYTES));
  await pass(0);
  expect(first.rows()).toBe(ROWS);
  void pacing.during(() => new Promise(() => {}));
  const second = reading(pacing.paced(file(), ROW_BYTES));
  await pass(1000);
  expect(second.rows()).toBeGreaterThan(800);
  expect(second.rows()).toBeLessThan(2000);
});

test('a file that is broken off breaks for its reader, and one whose reader leaves is closed', async () => {
  const pacing = createPacing(1000);
  void pacing.during(() => new Promise(() => {}));
  const broken = file();
  const read = pacing.paced(broken, ROW_BYTES);
  const failed = new Promise((resolve) => read.once('error', resolve));
  read.resume();
  await pass(100);
  broken.destroy(new Error('broken off'));
  await expect(failed).resolves.toMatchObject({ message: 'broken off' });

  const left = file();
  const reader = pacing.paced(left, ROW_BYTES);
  reader.resume();
  await pass(100);
  reader.destroy();
  await pass(200);
  expect(left.destroyed).toBe(true);
});

test('a file that is read steadily does not keep another one waiting', async () => {
  const pacing = createPacing(1000);
  void pacing.during(() => new Promise(() => {}));
  const steady = pacing.paced(file(3 * ROWS), ROW_BYTES);
  // Nine tenths of the rate.
  const taking = setInterval(() => steady.read(45 * ROW_BYTES), 50);
  await pass(8000);
  const late = reading(pacing.paced(file(), ROW_BYTES));
  await pass(4000);
  clearInterval(taking);
  expect(late.rows()).toBeGreaterThan(1000);
});
