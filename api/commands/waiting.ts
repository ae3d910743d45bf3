import { pause } from '../../infra/lifecycle.ts';

/** Waits for what a projection is about to make, by the name under which it is told. */
export interface Waiting {
  /**
   * Asks `look` at once, whenever the name is told, and now and then; null when it found nothing in time.
   *
   * @param deadline as `performance.now()` has it
   */
  until<T>(name: string, look: () => Promise<T | null>, deadline: number): Promise<T | null>;
  /** Wakes who waits for this name; called for every notification. */
  wake(name: string): void;
}

/** Finds what was told by a notification that got lost. */
const POLL_MS = 250;

export function createWaiting(): Waiting {
  const waiting = new Map<string, Set<() => void>>();
  return {
    async until(name, look, deadline) {
      for (;;) {
        const nudge = new AbortController();
        const wake = (): void => nudge.abort();
        const wakers = waiting.get(name) ?? new Set();
        waiting.set(name, wakers.add(wake));
        try {
          const found = await look();
          if (found !== null) return found;
          const left = deadline - performance.now();
          if (left <= 0) return null;
          await pause(Math.min(POLL_MS, left), nudge.signal);
        } finally {
          wakers.delete(wake);
          if (wakers.size === 0) waiting.delete(name);
        }
      }
    },
    wake(name) {
      for (const wake of waiting.get(name) ?? []) wake();
    },
  };
}
