import type { BlockPoint } from '../node/types.ts';
import type { Lease } from './lease.ts';
import type { IndexedChain } from './fork.ts';
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

/** Follows what is accepted on L1 beside the live chunk, and makes it count between two steps of its writer. */
export interface L1Watch {
  /** The highest block the node has named; null before the first. */
  newest(): BlockPoint | null;
  /**
   * Announces a new height, and drops what was recorded for blocks that can no longer be reverted - once our block at that
   * height is seen to be the very one accepted. Where it is not, there is a fork to be left first.
   */
  settle(ours: IndexedChain): Promise<void>;
  stop(): void;
}

export function createL1Watch(deps: IngestDeps, lease: Lease, known: number): L1Watch {
  const { node, store, clock, log, metrics, settings } = deps;
  const stopped = new AbortController();
  const signal = AbortSignal.any([stopped.signal, lease.signal]);
  const options = { signal, priority: 1 };
  let newest: BlockPoint | null = null;
  let announced = -1;

  const poll = async (): Promise<void> => {
    while (!signal.aborted) {
      try {
        const point = await node.l1Accepted(newest?.height ?? (known < 0 ? null : known), options);
        // A node that is behind names a lower one.
        if (point !== null && point.height > (newest?.height ?? -1)) newest = point;
      } catch (error) {
        if (!signal.aborted) log.warn({ err: error }, 'the height accepted on L1 is not known');
      }
      await clock.sleep(settings.l1PollMs, signal);
    }
  };
  void poll();

  return {
    newest: () => newest,
    async settle(ours) {
      const point = newest;
      if (point === null || ours.revertingFrom() !== null) return;
      const at = Math.min(point.height, ours.cursor() - 1);
      if (at > ours.floor().height && point.height > announced) {
        // Asked a second time, by number: what is final is never given up, so one answer is not enough.
        const { hash, status } = await node.getBlockHeader(at, options);
        const agreed = status === 'ACCEPTED_ON_L1' && (at < point.height || hash === point.hash);
        if (!agreed || hash !== ours.hashAt(at)) {
          log.warn({ height: at, hash, status }, 'what is accepted on L1 is not what is held');
          return;
        }
        await store.setFinal(lease, { height: at, hash });
        ours.finalised({ height: at, hash });
      }
      if (point.height <= announced) return;
      await publishStatus(deps, [{ type: 'l1.accepted', ...statusStamp(clock), height: point.height }]);
      announced = point.height;
      metrics.l1(point.height);
    },
    stop: () => stopped.abort(),
  };
}
