import { pause } from '../../infra/lifecycle.ts';
import type { Logger } from '../../infra/log.ts';

export interface IndexedHeight {
  /** The highest height that can be queried, as of the last look; null before the first block. */
  current(): number | null;
  close(): Promise<void>;
}

const POLL_MS = 500;

/**
 * Looks up the highest height that can be queried twice a second, so that no request pays for it. It may be older than
 * what a request reads, never newer but for a reorg. What was found last stands while the store is away.
 */
export function watchIndexedHeight(look: () => Promise<number | null>, log: Logger): IndexedHeight {
  const stop = new AbortController();
  let height: number | null = null;
  const loop = (async () => {
    while (!stop.signal.aborted) {
      try {
        height = await look();
      } catch (error) {
        log.debug({ err: error }, 'cannot look up the indexed height');
      }
      await pause(POLL_MS, stop.signal);
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
