/** Limits failures in a window, in this process. */
export interface Throttle {
  /**
   * Begins an attempt that counts for every one of these names; returns the seconds to wait when one of them has failed
   * too often. Attempts under way might all fail, so no more of them run at once than may still fail: one that is too
   * many waits until others have ended. So guesses made all at once do not pass the limit, and right log-ins do not
   * meet it. `end` must be called.
   */
  begin(names: readonly string[]): Promise<{ wait: number } | { end(isFailure: boolean): void }>;
}

interface Window {
  readonly began: number;
  failures: number;
  underWay: number;
}

/** Names held at once: an attacker may invent names without end. Refused attempts leave none behind. */
const NAMES = 50_000;

export function createThrottle(options: {
  /** Failures that a name may have in a window. */
  readonly limit: (name: string) => number;
  readonly windowMs: number;
  readonly now: () => number;
}): Throttle {
  const { limit, windowMs, now } = options;
  const windows = new Map<string, Window>();
  let ended = Promise.withResolvers<void>();

  const current = (name: string): Window => {
    const known = windows.get(name);
    if (known !== undefined && now() - known.began < windowMs) return known;
    return { began: now(), failures: 0, underWay: 0 };
  };

  const keep = (name: string, window: Window): void => {
    if (windows.get(name) === window) return;
    windows.delete(name); // the oldest stay first
    windows.set(name, window);
    makeRoom();
  };

  const makeRoom = (): void => {
    for (const [name, { began }] of windows) {
      if (windows.size <= NAMES && now() - began < windowMs) return;
      windows.delete(name);
    }
  };

  return {
    async begin(names) {
      for (;;) {
        const taken = names.map((name) => ({ name, most: limit(name), window: current(name) }));
        const full = taken.find(({ most, window }) => window.failures >= most);
        if (full !== undefined) return { wait: (full.window.began + windowMs - now()) / 1000 };
        if (taken.every(({ most, window }) => window.failures + window.underWay < most)) {
          for (const { name, window } of taken) {
            keep(name, window);
            window.underWay += 1;
          }
          return {
            end(isFailure) {
              for (const { window } of taken) {
                window.underWay -= 1;
                if (isFailure) window.failures += 1;
              }
              ended.resolve();
              ended = Promise.withResolvers();
            },
          };
        }
        await ended.promise;
      }
    },
  };
}
