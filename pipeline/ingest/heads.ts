import type { BlockPoint } from '../node/types.ts';
import { headerOf } from './fork.ts';
import type { IndexedChain } from './fork.ts';
import type { ChunkTask, IngestDeps } from './ports.ts';
import { publishStatus, statusStamp } from './publish.ts';

const ANNOUNCE_MS = 500;
/** Polls are this much more frequent while a block is due. */
const DUE_POLL_FACTOR = 5;
/** Milliseconds between polls while the node announces its heads, unless HEAD_POLL_MS is longer. */
const SUBSCRIBED_POLL_MS = 1000;
/** Milliseconds between polls for a head that was announced and that the node does not serve yet. */
const ANNOUNCED_POLL_MS = 50;
/** Milliseconds for which an announced head is polled for, and for which a polled head's announcement is waited for. */
const ANNOUNCEMENT_MS = 1000;
/** An announcement so soon after a head was found is that of this head. */
const LATE_MS = 100;
/** Heads whose publish latency is still measured. */
const MAX_TIMED_HEADS = 100;

export type Heads = ReturnType<typeof createHeads>;

type HeadsDeps = Pick<IngestDeps, 'publisher' | 'subscribeToHeads' | 'clock' | 'metrics' | 'settings'>;

/**
 * The node's newest block: published to `chain.status`, timed, and polled where the node does not announce it.
 *
 * @param published is updated
 */
export function createHeads(deps: HeadsDeps, published: ChunkTask['publishedHead']) {
  const { clock, metrics, settings } = deps;
  const announcements = followAnnouncements(deps);
  let head: BlockPoint | null = null;
  let roseAt = 0;
  /** Moving average of milliseconds between blocks; null until two were observed. */
  let interval: number | null = null;
  const firstSeen = new Map<number, number>();

  return {
    observe(seen: BlockPoint): void {
      const now = clock.now();
      if (head !== null && seen.hash !== head.hash) announcements.found();
      if (head !== null && seen.height > head.height) {
        const latest = (now - roseAt) / (seen.height - head.height);
        if (roseAt !== 0) interval = interval === null ? latest : interval + (latest - interval) / 4;
        roseAt = now;
        firstSeen.set(seen.height, now);
        const [oldest] = firstSeen.keys();
        if (firstSeen.size > MAX_TIMED_HEADS && oldest !== undefined) firstSeen.delete(oldest);
      }
      head = seen;
      metrics.head.set(seen.height);
    },
    /** The newest head observed; -1 before the first. */
    height: (): number => head?.height ?? -1,
    /** Called when Kafka has acknowledged a block. */
    published(height: number): void {
      const seenAt = firstSeen.get(height);
      if (seenAt === undefined) return;
      firstSeen.delete(height);
      metrics.publishSeconds.observe((clock.now() - seenAt) / 1000);
    },
    /** Publishes the head if it changed, at most twice a second. */
    async announce(): Promise<void> {
      const last = published.head;
      if (head === null || (head.hash === last?.hash && head.height === last.height)) return;
      if (clock.now() - published.at < ANNOUNCE_MS) return;
      const current = head;
      await publishStatus(deps, [{ type: 'head.seen', ...statusStamp(clock), ...current }]);
      published.head = current;
      published.at = clock.now();
    },
    /**
     * Sleeps until the next poll, or until the node announces another head.
     *
     * @param isBehind the node does not serve all blocks of its head yet
     */
    async wait(signal: AbortSignal, { isBehind = false } = {}): Promise<void> {
      const polled = pollDelay(clock.now() - roseAt, interval, settings.headPollMs);
      await announcements.wait(polled, isBehind, signal);
    },
    close: announcements.close,
  };
}

/** The announcements of heads by the node, and whether it can be relied on for them. */
function followAnnouncements({ subscribeToHeads, clock, settings }: HeadsDeps) {
  /** Whether a head was announced since the subscription was last restarted. */
  let hasAnnounced = false;
  /** Of the newest announcement whose head was not found yet; null: none. */
  let announcedAt: number | null = null;
  /** Of the first head that was found and not announced since; null: none. */
  let unannouncedAt: number | null = null;
  /** Whether an announcement came that no poll followed yet, however long ago. */
  let isPending = false;
  let wake = (): void => undefined;
  /** Whether an announcement ends the next wait: once for each head, so that a node cannot keep the ingester busy. */
  let canWake = true;
  const subscription = subscribeToHeads?.(() => {
    hasAnnounced = true;
    const isLate = unannouncedAt !== null && clock.now() - unannouncedAt < LATE_MS;
    unannouncedAt = null;
    if (isLate) return;
    announcedAt = clock.now();
    isPending = true;
    if (canWake) wake();
  });
  const isRecent = (at: number | null, ms: number): boolean => at !== null && clock.now() - at < ms;
  const isDue = (): boolean => isRecent(announcedAt, ANNOUNCEMENT_MS);
  const isReliable = (): boolean => hasAnnounced && subscription?.isLive() === true;

  /** Milliseconds to the next poll, given those without announcements. */
  const delay = (polled: number): number => {
    if (!isReliable() || unannouncedAt !== null) return polled;
    return isDue() ? ANNOUNCED_POLL_MS : Math.max(settings.headPollMs, SUBSCRIBED_POLL_MS);
  };
  return {
    /** The head has changed. */
    found(): void {
      if (!isDue() && isReliable()) unannouncedAt ??= clock.now();
      announcedAt = null;
      isPending = false;
      canWake = true;
    },
    async wait(polled: number, isBehind: boolean, signal: AbortSignal): Promise<void> {
      if (unannouncedAt !== null && !isRecent(unannouncedAt, ANNOUNCEMENT_MS)) {
        unannouncedAt = null;
        hasAnnounced = false;
        subscription?.restart();
      }
      const woken = new AbortController();
      wake = () => woken.abort();
      signal.addEventListener('abort', wake, { once: true });
      if (signal.aborted || (canWake && isPending)) wake();
      await clock.sleep(isBehind ? Math.min(polled, delay(polled)) : delay(polled), woken.signal);
      signal.removeEventListener('abort', wake);
      isPending = false;
      canWake = !isDue();
    },
    close: (): void => subscription?.close(),
  };
}

/**
 * Milliseconds to the next poll: short while a block is due (0.7 to 2 intervals after the last one), so that it is found
 * within tens of milliseconds; else `pollMs`, but no later than the next block is due.
 */
function pollDelay(sinceLast: number, interval: number | null, pollMs: number): number {
  const shortest = pollMs / DUE_POLL_FACTOR;
  if (interval === null || sinceLast > 2 * interval) return pollMs;
  const untilDue = 0.7 * interval - sinceLast;
  return untilDue <= 0 ? shortest : Math.max(shortest, Math.min(pollMs, untilDue));
}

/** The highest indexed block that is accepted on L1; null: none, as where a chain is indexed from a later block on. */
export function acceptedHeight(indexed: Pick<IndexedChain, 'final'>): number | null {
  const { height, hash } = indexed.final();
  return hash === null ? null : height;
}

export type L1Watch = ReturnType<typeof startL1Watch>;

/**
 * Polls the height accepted on L1 in the background, and applies it between two steps of the live loop.
 *
 * @param knownHeight the highest known to be accepted on L1; null: none
 */
export function startL1Watch(
  deps: IngestDeps,
  { lease, l1Requested }: Pick<ChunkTask, 'lease' | 'l1Requested'>,
  knownHeight: number | null,
) {
  const { node, store, blockLog, clock, log, metrics, settings } = deps;
  const stopped = new AbortController();
  const signal = AbortSignal.any([stopped.signal, lease.signal]);
  const options = { signal, priority: 1 };
  let newest: BlockPoint | null = null;
  let announced = { height: -1, final: -1 };

  const poll = async (): Promise<void> => {
    while (!signal.aborted) {
      try {
        const point = await node.l1Accepted(newest?.height ?? knownHeight, options);
        // A node that is behind reports a lower height.
        if (point !== null && point.height > (newest?.height ?? -1)) newest = point;
        await l1Requested(null);
      } catch (error) {
        if (signal.aborted) return;
        log.warn({ err: error }, 'L1 height not available; polling again');
        await l1Requested(error);
      }
      await clock.sleep(settings.l1PollMs, signal);
    }
  };
  void poll();

  /** False if the node does not show the indexed block at `height` as accepted on L1. */
  const finalize = async (indexed: IndexedChain, height: number, point: BlockPoint): Promise<boolean> => {
    // Read again by number: finality is irrevocable, so one answer is not enough.
    const served = await headerOf(node, height, options);
    const hash = indexed.hashAt(height);
    const isAccepted = served?.status === 'ACCEPTED_ON_L1' && served.hash === hash;
    if (hash === null || !isAccepted || (height === point.height && hash !== point.hash)) {
      log.warn(
        { height, hash: served?.hash ?? null, status: served?.status ?? null, indexed: hash },
        'block accepted on L1 differs from the indexed one, or the node that answered lacks it',
      );
      return false;
    }
    await store.setFinal(lease, { height, hash });
    indexed.finalized({ height, hash });
    return true;
  };

  return {
    /** The highest block the node has reported as accepted on L1; null before the first. */
    newest: (): BlockPoint | null => newest,
    /**
     * Makes the indexed blocks up to the newest height final once the indexed block at that height is seen to be the
     * accepted one, and publishes both heights. If it is not, the live loop must handle a reorg first.
     */
    async apply(indexed: IndexedChain): Promise<void> {
      const point = newest;
      if (point === null || indexed.revertingFrom() !== null) return;
      const height = Math.min(point.height, indexed.cursor() - 1);
      if (height > indexed.final().height && !(await finalize(indexed, height, point))) {
        // A wrong height would hide every true one below it.
        if (newest === point) newest = null;
        return;
      }
      const known = { height: point.height, final: acceptedHeight(indexed) ?? -1 };
      if (known.height <= announced.height && known.final <= announced.final) return;
      // Whatever the log had to revert below the final height was acknowledged before.
      const final =
        known.final < 0 ? {} : { final: { height: known.final, log_ends: await blockLog.ends() } };
      const message = { type: 'l1.accepted', ...statusStamp(clock), height: known.height, ...final } as const;
      await publishStatus(deps, [message]);
      announced = known;
      metrics.l1.set(point.height);
    },
    stop: (): void => stopped.abort(),
  };
}
