import { sleep } from '../../infra/lifecycle.ts';
import type { Logger } from '../../infra/log.ts';

export interface IndexedHeight {
  /** The highest height that can be queried, as last read; null before the first block. */
  current(): number | null;
  close(): Promise<void>;
}

const POLL_MS = 500;

/**
 * Polls the highest queryable height twice a second, so that no request pays for it. It may lag behind what a request
 * reads, and exceeds that only after a reorg. Keeps the last value while ClickHouse is unavailable.
 */
export function watchIndexedHeight(read: () => Promise<number | null>, log: Logger): IndexedHeight {
  const stop = new AbortController();
  let height: number | null = null;
  const loop = (async () => {
    while (!stop.signal.aborted) {
      try {
        height = await read();
      } catch (error) {
        log.debug({ err: error }, 'could not read the indexed height');
      }
      await sleep(POLL_MS, stop.signal);
    }
  })();
  return {
    current: () => height,
    async close() {
      stop.abort();
      await loop;
    },
  };
}
