import { sleep } from './lifecycle.ts';

/** Requests that wait for a row a projection is about to write, each under the name its notification will carry. */
export interface Waiters {
  /**
   * Calls `find` at once, after each notification of one of the names, and at `pollDelays`; null when it found nothing by
   * the deadline or until the signal.
   */
  until<T>(names: Iterable<string>, find: () => Promise<T | null>, options: WaitOptions): Promise<T | null>;
  /** Wakes every wait for this name. */
  notify(name: string): void;
}

export interface WaitOptions {
  /** On the clock of `performance.now()`. */
  readonly deadline: number;
  readonly signal?: AbortSignal | undefined;
  /** Delay after the first wake-up, so that one `find` serves a burst of notifications; doubled for each further one. */
  readonly gatherMs?: number;
}

/** Longest `gatherMs`: a wait for thousands of names would look hundreds of times. */
const MAX_GATHER_MS = 200;

const FIRST_POLL_MS = 250;
const MAX_POLL_MS = 1000;

/** Milliseconds between polls, which find rows whose notification was lost: doubled up to a second. */
export function* pollDelays(): Generator<number, never> {
  for (let ms = FIRST_POLL_MS; ; ms = Math.min(2 * ms, MAX_POLL_MS)) yield ms;
}

export function createWaiters(): Waiters {
  const wakersByName = new Map<string, Set<() => void>>();

  const register = (name: string, wake: () => void): void => {
    wakersByName.set(name, (wakersByName.get(name) ?? new Set()).add(wake));
  };
  const unregister = (name: string, wake: () => void): void => {
    const wakers = wakersByName.get(name);
    wakers?.delete(wake);
    if (wakers?.size === 0) wakersByName.delete(name);
  };

  return {
    async until(names, find, { deadline, signal, gatherMs = 0 }) {
      const watched = new Set(names);
      let gather = gatherMs;
      for (const pollMs of pollDelays()) {
        const notified = new AbortController();
        const wake = (): void => notified.abort();
        // Registered before looking: a row written in between still wakes this wait.
        for (const name of watched) register(name, wake);
        try {
          const found = await find();
          if (found !== null) return found;
          const remainingMs = deadline - performance.now();
          if (remainingMs <= 0 || signal?.aborted === true) return null;
          await sleep(Math.min(pollMs, remainingMs), notified.signal);
          if (gather > 0) await sleep(gather);
          gather = Math.min(2 * gather, MAX_GATHER_MS);
        } finally {
          for (const name of watched) unregister(name, wake);
        }
      }
      return null;
    },
    notify(name) {
      for (const wake of wakersByName.get(name) ?? []) wake();
    },
  };
}
