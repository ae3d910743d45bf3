import type { Logger } from '../../infra/log.ts';
import { repeat } from '../../infra/repeating.ts';

export interface IndexedHeight {
  /** The highest height that can be queried, as last read; null before the first block. */
  current(): number | null;
  /** Tells that blocks were indexed or taken back. */
  notify(): void;
  close(): Promise<void>;
}

/** A notification may be lost. */
const POLL_MS = 2000;

/**
 * Reads the highest queryable height when blocks were indexed, so that no request pays for it. It may lag behind what a
 * request reads, and exceeds that only after a reorg. Keeps the last value while ClickHouse is unavailable.
 */
export function watchIndexedHeight(read: () => Promise<number | null>, log: Logger): IndexedHeight {
  let height: number | null = null;
  const reading = repeat(async () => {
    try {
      height = await read();
    } catch (error) {
      log.debug({ err: error }, 'could not read the indexed height');
    }
  }, POLL_MS);
  return { current: () => height, notify: reading.wake, close: reading.close };
}
