import { Transform, pipeline } from 'node:stream';
import type { Readable, TransformCallback } from 'node:stream';

import { sleep } from '../../infra/lifecycle.ts';

/** Sends files slowly while pages are read. */
export interface Pacing {
  /** Reads a page: files are sent slowly until it is read. */
  during<T>(read: () => Promise<T>): Promise<T>;
  /** The same file. All files together pass at most the rate of rows while pages are read. */
  paced(file: Readable, rowBytes: number): Readable;
  /** Rows that a statement may read per second before its file begins: as many as it can while no page is read. */
  readRate(): number;
}

/**
 * Rows of files sent per second for each core while pages are read. On two cores, a page beside files of 8000 rows takes about as
 * long as alone; beside 11,000 it took 1.05 to 1.29 times as long, beside 23,000 1.15 to 1.44 times.
 */
export const ROWS_PER_CORE = 8000;
/**
 * Reading and sorting a row takes less than formatting it. With this, pages beside exports of 5 million transfers took 1.05 times as
 * long as alone; without a limit, 1.35 times.
 */
const READ_ROWS_PER_ROW = 6;
/** So long after a page, the next one is expected. */
const RECENT_MS = 500;
/** Rows are sent for this time at once: most pages then are read while nothing is sent. */
const SLICE_MS = 500;
/** How soon a file is sent at full speed again. */
const STEP_MS = 100;

/**
 * A file takes all the CPU time that is left, and its statement cannot be made to take less: even with the lowest
 * priority of its threads, a page takes half as long again, because they share a core. But ClickHouse does not compute
 * what is not read.
 *
 * @param rowsPerSecond of all files together, while pages are read
 */
export function createPacing(rowsPerSecond: number): Pacing {
  const now = (): number => performance.now();
  let running = 0;
  let lastAt = -Infinity;
  let files = 0;
  const isReading = (): boolean => running > 0 || now() - lastAt < RECENT_MS;

  /** Returns a function that resolves when so many rows of one file may be sent. Every file has an equal share. */
  const createTurns = (): ((rows: number) => Promise<void>) => {
    let dueAt = -Infinity;
    return async (rows) => {
      dueAt = Math.max(dueAt, now()) + (1000 * rows * files) / rowsPerSecond;
      if (isReading() && dueAt - now() < SLICE_MS) return;
      while (isReading() && now() < dueAt) await sleep(Math.min(STEP_MS, dueAt - now()));
      if (!isReading()) dueAt = now();
    };
  };

  return {
    async during(read) {
      running += 1;
      try {
        return await read();
      } finally {
        running -= 1;
        lastAt = now();
      }
    },
    readRate: () => (isReading() ? READ_ROWS_PER_ROW * rowsPerSecond : Infinity),
    paced(file, rowBytes) {
      const inTurn = createTurns();
      const paced = new Transform({
        transform(chunk: Buffer, _, done: TransformCallback) {
          void (async () => {
            await inTurn(chunk.length / rowBytes);
            done(null, chunk);
          })();
        },
      });
      files += 1;
      paced.once('close', () => (files -= 1));
      // An error of either destroys both, and reaches the reader of the second.
      pipeline(file, paced, () => {});
      return paced;
    },
  };
}
