/** Counts failures in a window, in this process. What was reserved and did not fail is given back. */
export interface Throttle {
  /** Takes a slot of every name; returns the seconds to wait when one of them has none left, and takes nothing. */
  reserve(names: readonly string[]): { wait: number } | { giveBack(): void };
}

/** Names held at once: an attacker may invent names without end. */
const NAMES = 50_000;

export function createThrottle(options: {
  /** Failures that a name may have in a window. */
  readonly limit: (name: string) => number;
  readonly windowMs: number;
  readonly now: () => number;
}): Throttle {
  const { limit, windowMs, now } = options;
  const windows = new Map<string, { began: number; count: number }>();

  const current = (name: string): { began: number; count: number } => {
    const known = windows.get(name);
    if (known !== undefined && now() - known.began < windowMs) return known;
    const fresh = { began: now(), count: 0 };
    windows.delete(name);
    windows.set(name, fresh);
    return fresh;
  };

  const makeRoom = (): void => {
    for (const [name, { began }] of windows) {
      if (windows.size <= NAMES && now() - began < windowMs) return;
      windows.delete(name);
    }
  };

  return {
    reserve(names) {
      makeRoom();
      const taken = names.map((name) => ({ name, window: current(name) }));
      const full = taken.find(({ name, window }) => window.count >= limit(name));
      if (full !== undefined) return { wait: (full.window.began + windowMs - now()) / 1000 };
      for (const { window } of taken) window.count += 1;
      return {
        giveBack() {
          for (const { window } of taken) window.count -= 1;
        },
      };
    },
  };
}
