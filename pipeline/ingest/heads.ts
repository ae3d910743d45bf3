import type { BlockPoint } from '../node/types.ts';
import type { IngestDeps } from './ports.ts';
import { publishStatus, statusStamp } from './publish.ts';

/** The node's head as it moves: announced in the log, timed, and waited for. */
export interface Heads {
  seen(head: BlockPoint): void;
  /** The newest head seen; -1 before the first. */
  height(): number;
  /** A block was published and acknowledged. */
  published(height: number): void;
  /** Publishes the head if it changed, at most twice a second. */
  announce(): Promise<void>;
  /** Pauses until the next look is worth it. */
  wait(signal: AbortSignal): Promise<void>;
}

const ANNOUNCE_MS = 500;
/** Looks are so much closer together while a block is due. */
const EAGERNESS = 5;
const REMEMBERED_HEADS = 100;

export function createHeads(deps: Pick<IngestDeps, 'publisher' | 'clock' | 'metrics' | 'settings'>): Heads {
  const { clock, metrics, settings } = deps;
  let head: BlockPoint | null = null;
  let announced: BlockPoint | null = null;
  let announcedAt = 0;
  let roseAt = 0;
  /** Milliseconds between blocks, as seen; null until two were. */
  let interval: number | null = null;
  const firstSeen = new Map<number, number>();

  return {
    seen(seenHead) {
      const now = clock.now();
      if (head !== null && seenHead.height > head.height) {
        const one = (now - roseAt) / (seenHead.height - head.height);
        if (roseAt !== 0) interval = interval === null ? one : interval + (one - interval) / 4;
        roseAt = now;
        firstSeen.set(seenHead.height, now);
        const [oldest] = firstSeen.keys();
        if (firstSeen.size > REMEMBERED_HEADS && oldest !== undefined) firstSeen.delete(oldest);
      }
      head = seenHead;
      metrics.head(seenHead.height);
    },
    height: () => head?.height ?? -1,
    published(height) {
      const seenAt = firstSeen.get(height);
      if (seenAt === undefined) return;
      firstSeen.delete(height);
      metrics.published(clock.now() - seenAt);
    },
    async announce() {
      if (head === null || (head.hash === announced?.hash && head.height === announced.height)) return;
      if (clock.now() - announcedAt < ANNOUNCE_MS) return;
      const telling = head;
      await publishStatus(deps, [{ type: 'head.seen', ...statusStamp(clock), ...telling }]);
      announced = telling;
      announcedAt = clock.now();
    },
    async wait(signal) {
      await clock.sleep(pollDelay(clock.now() - roseAt, interval, settings.headPollMs), signal);
    },
  };
}

/**
 * The next look comes soon while a block is due (from seven tenths to twice the usual interval), so that it is found a
 * few dozen milliseconds after it can be had; else at the usual pace, but not later than the next one is due.
 */
export function pollDelay(sinceLast: number, interval: number | null, pollMs: number): number {
  const eager = pollMs / EAGERNESS;
  if (interval === null || sinceLast > 2 * interval) return pollMs;
  const untilDue = 0.7 * interval - sinceLast;
  return untilDue <= 0 ? eager : Math.max(eager, Math.min(pollMs, untilDue));
}
