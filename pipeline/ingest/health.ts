import { HEAD_STALLED, UNCLASSIFIED } from '../../infra/health/alarms.ts';
import { AppError, errorMessage, isRetryable } from '../../schemas/errors.ts';
import type { Felt } from '../../schemas/felt.ts';
import { LIVE } from '../../schemas/messages/chain-blocks.ts';
import type { BlockPoint } from '../node/types.ts';
import type { Fence, IngestDeps } from './ports.ts';

interface HealthDeps extends Pick<IngestDeps, 'store' | 'clock' | 'log' | 'metrics'> {
  readonly settings: Pick<IngestDeps['settings'], 'stallMs' | 'headStallMs'>;
}

interface Head {
  /** The greatest height that the node has answered; the indexed height if all its answers were below that. */
  readonly height: number;
  /** Of the blocks that it has answered at this height; empty: none. */
  readonly hashes: ReadonlySet<Felt>;
  /** When it first answered the newest of them, or its first answer if there are none, unix milliseconds. */
  readonly since: number;
}

interface Watched {
  readonly fence: Fence | undefined;
  progressAt: number;
  /** What the chunk waits for, where nothing has failed; null: nothing. */
  waitsFor: string | null;
  stalled: boolean;
  alarmed: boolean;
  head: Head | null;
  /** null: not known, an earlier process may have raised the alarm. */
  isHeadStalled: boolean | null;
  /** When the current run of failed requests for the height accepted on L1 began; null: the last one succeeded. */
  l1FailingSince: number | null;
  /** null: not known, an earlier process may have raised the alarm. */
  isL1Unavailable: boolean | null;
}

/** Consecutive retryable failures that raise an alarm; a failure that is not retryable raises one at once. */
const ALARM_AFTER_FAILURES = 5;

/** As if alarmed: the first progress clears the alarms of an earlier process. */
const STARTED = {
  waitsFor: null,
  stalled: false,
  alarmed: true,
  head: null,
  isHeadStalled: null,
  l1FailingSince: null,
  isL1Unavailable: null,
};

const L1_UNAVAILABLE = 'node.l1-unavailable';

export const codeOf = (error: unknown): string => (error instanceof AppError ? error.code : 'bug');

const HALTING: ReadonlySet<string> = new Set(['REORG_BELOW_L1', 'RECORDS_INCOMPLETE', 'CHAIN_MISMATCH']);

/** Whether only an operator can end a failure. */
export const isHalting = (error: unknown): boolean => HALTING.has(codeOf(error));

const describe = (error: unknown): string => `${codeOf(error)}: ${errorMessage(error)}`;

const failing = (chunk: string): string => `ingest.failing:${chunk}`;
const stalling = (chunk: string): string => `ingest.stalled:${chunk}`;
/** A reorg of the live chunk may have removed the block that needed a contract. One still needed fails, and is raised, again. */
const alarmsOf = (chunk: string): string[] => [
  failing(chunk),
  stalling(chunk),
  ...(chunk === LIVE ? [UNCLASSIFIED] : []),
];

export type Health = ReturnType<typeof createHealth>;

/**
 * Nodes behind one address may answer different blocks in turn, so a block is new only if it was not seen before and is
 * at no lower height. None below the index is new: there, a node that still syncs adds blocks.
 */
function newestHead(newest: Head | null, indexed: number, head: BlockPoint | null, now: number): Head {
  const known = newest ?? { height: indexed, hashes: new Set(), since: now };
  if (head === null) return known;
  const { height, hash } = head;
  if (height > known.height) return { height, hashes: new Set([hash]), since: now };
  if (height < known.height || known.hashes.has(hash)) return known;
  return { height, hashes: new Set([...known.hashes, hash]), since: now };
}

/** null: not known, the alarm of an earlier process stands until the node has reached the index. */
function isStalledHead({ hashes, since }: Head, headStallMs: number, now: number): boolean | null {
  if (headStallMs === 0) return false;
  if (now - since >= headStallMs) return true;
  return hashes.size === 0 ? null : false;
}

/**
 * @param answered the block that the node has answered now; null: none
 * @param timestamp unix seconds of the newest block; null: unknown
 */
function describeStall(
  { height, hashes, since }: Head,
  answered: BlockPoint | null,
  timestamp: number | null,
  now: number,
): string {
  const start = new Date(since).toISOString();
  if (hashes.size === 0) {
    const last = answered === null ? 'it had none' : `it was ${answered.height}`;
    return `the newest block of the node has been below the index (${height}) since ${start}; ${last} when this alarm was raised`;
  }
  const age = timestamp === null ? null : Math.round(now / 1000 - timestamp);
  const ageDetail = age === null ? '' : `; its timestamp was ${age} s ago when this alarm was raised`;
  return `the newest block of the node has been ${height} since ${start}${ageDetail}`;
}

type TryStore = ReturnType<typeof createTryStore>;

/** Returns a function that changes alarms: false if PostgreSQL did not take the change; it may be what is unavailable. */
function createTryStore(log: HealthDeps['log']) {
  return async (work: () => Promise<void>): Promise<boolean> => {
    try {
      await work();
      return true;
    } catch (error) {
      log.warn({ err: error }, 'alarm not stored');
      return false;
    }
  };
}

/**
 * Raises an alarm once requests for the height accepted on L1 have failed for `stallMs`, and clears it at the next answer.
 */
function createL1Alarm(
  { store, clock, settings }: Pick<HealthDeps, 'store' | 'clock' | 'settings'>,
  tryStore: TryStore,
) {
  return async (state: Watched, failure: unknown): Promise<void> => {
    const now = clock.now();
    const since = (state.l1FailingSince = failure === null ? null : (state.l1FailingSince ?? now));
    if (since !== null && now - since < settings.stallMs) return;
    const isUnavailable = since !== null;
    if (isUnavailable === state.isL1Unavailable) return;
    const detail = `no answer for ${Math.round(settings.stallMs / 1000)} s: ${describe(failure)}`;
    const changed = await tryStore(() =>
      isUnavailable
        ? store.raiseAlarm(L1_UNAVAILABLE, detail, state.fence)
        : store.clearAlarms([L1_UNAVAILABLE], state.fence),
    );
    if (changed) state.isL1Unavailable = isUnavailable;
  };
}

/** Alarms per chunk for `/readyz` and operators: failures, and stalls where nothing failed. */
export function createHealth({ store, clock, log, metrics, settings }: HealthDeps) {
  const watched = new Map<string, Watched>();

  const tryStore = createTryStore(log);
  const reportL1 = createL1Alarm({ store, clock, settings }, tryStore);

  return {
    /** This process starts writing the chunk. With a fence, alarms change only while its lease is valid. */
    watch(chunk: string, fence?: Fence): void {
      watched.set(chunk, { ...STARTED, fence, progressAt: clock.now() });
    },
    unwatch(chunk: string): void {
      watched.delete(chunk);
      metrics.stalled.set({ chunk }, 0);
    },
    /** The chunk made progress, perhaps after failures, or has nothing to do. Clears its alarms. */
    async progress(chunk: string, hasFailed = false): Promise<void> {
      const state = watched.get(chunk);
      if (state === undefined) return;
      Object.assign(state, { progressAt: clock.now(), waitsFor: null, alarmed: state.alarmed || hasFailed });
      if (!state.stalled && !state.alarmed) return;
      if (state.stalled) log.info({ chunk }, 'chunk progresses again');
      metrics.stalled.set({ chunk }, 0);
      const cleared = await tryStore(() => store.clearAlarms(alarmsOf(chunk), state.fence));
      if (cleared) Object.assign(state, { stalled: false, alarmed: false });
    },
    /** The chunk makes no progress, for the reason that its alarm is to give. */
    waiting(chunk: string, waitsFor: string): void {
      const state = watched.get(chunk);
      if (state !== undefined) state.waitsFor = waitsFor;
    },
    /**
     * The writer of the chunk has read the node's newest block. Raises an alarm once the node has had no new one for
     * `headStallMs`, and clears it at the next.
     *
     * @param head null: the node has no block
     * @param indexed the highest indexed height; -1: none
     * @param readTimestamp unix seconds of the block at a height
     */
    async headSeen(
      chunk: string,
      head: BlockPoint | null,
      indexed: number,
      readTimestamp: (height: number) => Promise<number>,
    ): Promise<void> {
      const state = watched.get(chunk);
      if (state === undefined) return;
      const now = clock.wallTime();
      const newest = (state.head = newestHead(state.head, indexed, head, now));
      const isStalled = isStalledHead(newest, settings.headStallMs, now);
      if (isStalled === null || isStalled === state.isHeadStalled) return;
      const changed = await tryStore(async () => {
        if (!isStalled) return await store.clearAlarms([HEAD_STALLED], state.fence);
        // A node that is stuck may not return block headers.
        const timestamp = await readTimestamp(newest.height).catch(() => null);
        const detail = describeStall(newest, head, timestamp, now);
        log.error({ detail }, 'head of the node stalled');
        await store.raiseAlarm(HEAD_STALLED, detail, state.fence);
      });
      if (changed) state.isHeadStalled = isStalled;
    },
    /** The chunk's blocks were reverted: its chain may have a lower head than before. */
    forgetHead(chunk: string): void {
      const state = watched.get(chunk);
      if (state !== undefined) state.head = null;
    },
    /** The writer of the chunk has requested the height accepted on L1; failure null: the node answered. */
    async l1Requested(chunk: string, failure: unknown): Promise<void> {
      const state = watched.get(chunk);
      if (state !== undefined) await reportL1(state, failure);
    },
    /** Clears what a writer that was killed, or could not reach PostgreSQL, has left of finished chunks. */
    async clearFinished(chunks: readonly string[]): Promise<void> {
      if (chunks.length > 0) await tryStore(() => store.clearAlarms(chunks.flatMap(alarmsOf)));
    },
    /** A step of the chunk failed, for the given number of times in a row. */
    async failed(chunk: string, error: unknown, failures: number): Promise<void> {
      const state = watched.get(chunk);
      if (state !== undefined) state.waitsFor = null;
      if (isRetryable(error) && failures < ALARM_AFTER_FAILURES) return;
      if (state !== undefined) state.alarmed = true;
      await tryStore(() => store.raiseAlarm(failing(chunk), describe(error), state?.fence));
    },
    /** Raises alarms for chunks without progress. Called about once a second. */
    async check(): Promise<void> {
      for (const [chunk, state] of watched) {
        const idleMs = clock.now() - state.progressAt;
        if (state.stalled || idleMs < settings.stallMs) continue;
        const { waitsFor } = state;
        log.error({ chunk, seconds: Math.round(idleMs / 1000), waitsFor }, 'chunk stalled');
        metrics.stalled.set({ chunk }, 1);
        const seconds = Math.round(settings.stallMs / 1000);
        const detail = `no progress for ${seconds} s${waitsFor === null ? '' : `: ${waitsFor}`}`;
        // Repeated at the next check until it is stored.
        state.stalled = await tryStore(() => store.raiseAlarm(stalling(chunk), detail, state.fence));
      }
    },
  };
}
