import type { BlockFeed } from './block-feed.ts';

/** Milliseconds for which the event loop has worked and waited: `performance.eventLoopUtilization`. */
interface Utilization {
  readonly active: number;
  readonly idle: number;
}

export interface Pace {
  /** Milliseconds until more work may begin; 0: now. */
  restMs(): number;
  /** Called when work begins. */
  begin(): void;
}

export interface PaceOptions {
  /** Largest fraction of the time since work last began for which the event loop may have been busy, above 0, at most 1. */
  readonly maxBusyShare: number;
  /** Nothing begins for this long after the newest block, so that it is projected and read first. */
  readonly blockMs: number;
  /** Upper bound of either delay. */
  readonly maxDelayMs: number;
}

/** Of the tasks that no client requested: new blocks need the machine. */
const TASKS: PaceOptions = { maxBusyShare: 0.4, blockMs: 700, maxDelayMs: 1000 };

export const createTaskPace = (blocks: Pick<BlockFeed, 'sinceNewestMs'>): Pace =>
  createPace(TASKS, () => blocks.sinceNewestMs());

/** Slows work down where the process is busy or a block is new. Work that waits for others, as downloads do, is not slowed down. */
export function createPace(
  { maxBusyShare, blockMs, maxDelayMs }: PaceOptions,
  sinceNewestMs: () => number,
  utilization: () => Utilization = () => performance.eventLoopUtilization(),
): Pace {
  let last: Utilization | null = null;
  /** Since when blocks, one soon after the other, have held work back. */
  let heldSince: number | null = null;
  return {
    restMs() {
      const { active, idle } = utilization();
      const now = active + idle;
      const busyRestMs =
        last === null
          ? 0
          : Math.min((active - last.active) / maxBusyShare, maxDelayMs) - (now - last.active - last.idle);
      const blockRestMs = blockMs - sinceNewestMs();
      heldSince = blockRestMs > 0 ? (heldSince ?? now) : null;
      const leftMs = heldSince === null ? 0 : heldSince + maxDelayMs - now;
      return Math.max(0, busyRestMs, Math.min(blockRestMs, leftMs));
    },
    begin() {
      last = utilization();
      heldSince = null;
    },
  };
}
