/** The time that reads took in the last seconds. */
export interface Usage {
  /** Counts a read as running until the function returned is called. */
  begin(): () => void;
  /** Reads that run. */
  running(): number;
  /** Milliseconds of reads, of those that run too; a third of them is left after `FORGET_MS`. */
  ms(): number;
  /** 0 for little use; each further level is twice as much, up to `MAX_LEVEL`. */
  level(): number;
  isIdle(): boolean;
}

const FORGET_MS = 2000;
/** Use beyond this is level 1. */
const LEVEL_MS = 250;
export const MAX_LEVEL = 9;

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
    level: () => Math.min(MAX_LEVEL, Math.max(0, Math.ceil(Math.log2(Math.max(1, ms()) / LEVEL_MS)))),
    isIdle: () => startTimes.size === 0 && endedMs() < 1,
  };
}
