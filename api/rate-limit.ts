/** Counts calls in a rolling window, in this process. */
export interface RateLimit {
  /** Takes one call of this name; null when it is allowed, else the seconds until one will be. A refused call counts not. */
  take(name: string): number | null;
}

/** Names held at once; the ones that called longest ago go first. */
const NAMES = 50_000;

export function createRateLimit(options: {
  readonly limit: number;
  readonly windowMs: number;
  readonly now: () => number;
}): RateLimit {
  const { limit, windowMs, now } = options;
  /** When each name called in the window, oldest first. */
  const calls = new Map<string, number[]>();
  return {
    take(name) {
      const at = now();
      const inWindow = (calls.get(name) ?? []).filter((time) => at - time < windowMs);
      const first = inWindow[0];
      if (first !== undefined && inWindow.length >= limit) return (first + windowMs - at) / 1000;
      calls.delete(name);
      calls.set(name, [...inWindow, at]);
      for (const oldest of calls.keys()) {
        if (calls.size <= NAMES) break;
        calls.delete(oldest);
      }
      return null;
    },
  };
}
