import type { Logger } from '../../infra/log.ts';
import { startLoop, withRest } from '../../infra/loop.ts';

export interface IndexedHeight {
  /** The highest height that can be queried, as last read; null before the first block. */
  current(): number | null;
  /** Whether it reaches a height within `ms`; false as soon as the signal fires. */
  readonly reaches: (height: number, ms: number, signal: AbortSignal) => Promise<boolean>;
  /** Notifies that blocks were indexed or reverted. */
  notify(): void;
  close(): Promise<void>;
}

/** A notification may be lost. */
const POLL_MS = 2000;
/** The same while a request waits for a height: one read for all that wait. */
const AWAITED_POLL_MS = 200;

/**
 * Reads the highest queryable height when blocks were indexed, so that no request pays for it. It may lag behind what a
 * request reads, and exceeds that only after a reorg. Keeps the last value while ClickHouse is unavailable.
 */
export function watchIndexedHeight(read: () => Promise<number | null>, log: Logger): IndexedHeight {
  let height: number | null = null;
  const waiting = new Set<() => void>();
  const readAgain = async (): Promise<void> => {
    try {
      height = await read();
    } catch (error) {
      log.debug({ err: error }, 'could not read the indexed height');
    }
    for (const look of waiting) look();
  };
  const reading = startLoop({ round: withRest(readAgain, POLL_MS) });
  let polling: NodeJS.Timeout | undefined;
  const wait = (look: () => void): void => {
    if (waiting.size === 0) polling = setInterval(reading.wake, AWAITED_POLL_MS);
    waiting.add(look);
    reading.wake();
  };
  const leave = (look: () => void): void => {
    waiting.delete(look);
    if (waiting.size === 0) clearInterval(polling);
  };
  return {
    current: () => height,
    reaches: (wanted, ms, signal) =>
      new Promise((resolve) => {
        const isReached = (): boolean => height !== null && height >= wanted;
        if (isReached() || signal.aborted) {
          resolve(isReached());
          return;
        }
        const end = (): void => {
          clearTimeout(timer);
          signal.removeEventListener('abort', end);
          leave(look);
          resolve(isReached());
        };
        const look = (): void => {
          if (isReached()) end();
        };
        const timer = setTimeout(end, ms);
        signal.addEventListener('abort', end, { once: true });
        wait(look);
      }),
    notify: reading.wake,
    close: reading.stop,
  };
}
