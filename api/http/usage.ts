/** The time that reads took in the last seconds. */
export interface Usage {
  /** Counts a read as running until the function returned is called. */
  begin(): () => void;
  /** Reads that run. */
  running(): number;
  /** Milliseconds of reads, of those that run too; a third of them is left after `FORGET_MS`. */
  ms(): number;
  isIdle(): boolean;
}

const FORGET_MS = 2000;
/** As much as one read that runs all the time. */
const HEAVY_MS = FORGET_MS;
/** Times the use of the one that uses least. */
const HEAVY_RATIO = 4;

export function createUsage(now: () => number): Usage {
  const startTimes = new Set<{ readonly at: number }>();
  let ended = { ms: 0, at: now() };
  const endedMs = (): number => ended.ms * Math.exp((ended.at - now()) / FORGET_MS);
  const ms = (): number => [...startTimes].reduce((sum, { at }) => sum + now() - at, endedMs());
  return {
    begin() {
      const started = { at: now() };
      startTimes.add(started);
      return () => {
        if (!startTimes.delete(started)) return;
        ended = { ms: endedMs() + now() - started.at, at: now() };
      };
    },
    running: () => startTimes.size,
    ms,
    isIdle: () => startTimes.size === 0 && endedMs() < 1,
  };
}

/** True where this use keeps others waiting: more than one read at a time, and several times as much as another one has. */
export function isHeavy(usage: Usage, all: Iterable<Usage>): boolean {
  const ms = usage.ms();
  if (ms <= HEAVY_MS) return false;
  const others = [...all].filter((other) => other !== usage && !other.isIdle());
  return others.some((other) => ms > HEAVY_RATIO * other.ms());
}
