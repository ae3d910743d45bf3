import { isPostgresUnavailable } from '../../infra/postgres/client.ts';
import { backoffMs } from '../../infra/retry.ts';
import { errorMessage, isRetryable } from '../../schemas/errors.ts';
import type { Topic } from '../../schemas/topics.ts';
import { sleep } from '../../infra/lifecycle.ts';
import { createLruCache } from '../../infra/lru.ts';
import type { Loop } from '../../infra/loop.ts';
import { pauseMs } from './backfill.ts';
import type { IsBackfilling } from './backfill.ts';
import type { BlockHandler, LoggedBlock } from './block-feed.ts';
import { CLAIM_MS } from './claims.ts';
import type { TaskClaim } from './claims.ts';
import { OBSERVER_BACKOFF } from './observer.ts';
import type { Observer } from './observer.ts';
import type { ObserverMetrics } from './metrics.ts';
import type { Pace } from './pace.ts';

/** Tasks in a database. The methods that end a claim return false when the claim has expired and was taken over. */
export interface TaskStore<C extends TaskClaim, M> {
  claim(limit: number, now: number, which: 'all' | 'requested'): Promise<C[]>;
  /** Stores the message that is about to be published. */
  prepare(claim: C, message: M): Promise<boolean>;
  /** Records that the message is published. */
  done(claim: C, now: number, message: M): Promise<boolean>;
  failed(claim: C, nextAt: number, error: string): Promise<boolean>;
  /** Returns a task without counting an attempt; it is due at `at`. */
  release(claim: C, at: number): Promise<boolean>;
  /** Makes tasks due that a clock which was ahead has scheduled. */
  bringForward(now: number): Promise<void>;
  /** Counts open tasks, and those of them with a failed attempt. */
  backlog(): Promise<{ waiting: number; failing: number }>;
}

export interface WorkerOptions<M, C extends TaskClaim = TaskClaim> {
  readonly store: TaskStore<C, M>;
  readonly topic: Topic<M>;
  /** Makes the observation. Throws to be retried with backoff; null to be retried soon, without counting an attempt. */
  readonly observe: (
    subject: string,
    task: C['task'],
    signal: AbortSignal,
    failures: number,
  ) => Promise<M | null>;
  readonly onPublished?: (message: M) => void;
  /** Upper bound of tasks in progress. */
  readonly concurrency: number;
  readonly metrics: ObserverMetrics;
  readonly isBackfilling: IsBackfilling;
  readonly random?: () => number;
  /** Of tasks that no client requested. */
  readonly pace: Pace;
}

/** Ends before the claim, with time to record the outcome. */
const ATTEMPT_MS = CLAIM_MS - 15_000;
/** Counting the backlog reads every open task. */
const BACKLOG_INTERVAL_MS = 5000;
const NOT_NOW_MS = 1000;
/** During a backfill, between two groups of tasks; the minimum lets tasks collect, so that a group shares its statements. */
const PAUSE_MS = { min: 2000, max: 5000 };
/**
 * Longest wait for a group. A task that is still waiting then, for example for a host that hangs, continues beside the next group,
 * which is smaller by it.
 */
const GROUP_MS = 5000;
/**
 * How long the message of a task that no client requested waits for others, so that they are stored, published and projected
 * together.
 */
const GATHER_MS = 100;
/** Tasks claimed at a time, unless only requested ones are; all at once would keep the process busy for long. */
const MAX_CLAIMED = 8;

/**
 * Processes the tasks of one observer: claim, observe, store, publish, done. Each task has its own backoff. Unfinished tasks
 * are released when the observer stops.
 *
 * During a backfill, a few tasks that no client has requested are processed together, followed by a pause; at other times they
 * begin at their pace, which leaves the machine to new blocks.
 */
export function startWorker<M, C extends TaskClaim = TaskClaim>(
  observer: Observer,
  options: WorkerOptions<M, C>,
): Loop {
  const { store, concurrency, metrics, isBackfilling, pace } = options;
  const { name, log, now, fail } = observer;
  const labels = { observer: name };
  const running = new Set<Promise<void>>();
  let nextCheckAt = 0;
  let isPausing = false;
  /** Tasks in progress that began in a group: places are left for requested ones. */
  let grouped = 0;
  let isResting = false;

  const gather = createGathering(observer.signal);

  function start(claim: C): Promise<void> {
    const run = attempt(observer, options, claim, claim.is_requested ? null : gather)
      .catch((error: unknown) => {
        if (!isPostgresUnavailable(error)) return fail(error);
        const fields = { err: error, observer: name, subject: claim.subject };
        log.warn(fields, 'PostgreSQL unavailable, task is retried when its claim expires');
      })
      .finally(() => {
        const wasFull = running.size === concurrency;
        running.delete(run);
        // During a rest only requested tasks begin, which may have waited for this place.
        if (!observer.signal.aborted && (!isResting || wasFull)) loop.wake();
      });
    running.add(run);
    return run;
  }

  async function startWithPause(claims: readonly C[]): Promise<void> {
    isPausing = true;
    const began = performance.now();
    grouped += claims.length;
    const ended = Promise.all(claims.map((claim) => start(claim).finally(() => (grouped -= 1))));
    await Promise.race([ended, sleep(GROUP_MS, observer.signal)]);
    await sleep(pauseMs(performance.now() - began, PAUSE_MS), observer.signal);
    isPausing = false;
    if (!observer.signal.aborted) loop.wake();
  }

  async function rest(ms: number): Promise<void> {
    isResting = true;
    await sleep(ms, observer.signal);
    isResting = false;
    if (!observer.signal.aborted) loop.wake();
  }

  /** Claims tasks that may begin now; returns true where there may be more. */
  async function startTasks(free: number, isSlow: boolean): Promise<boolean> {
    const restMs = isSlow || isResting ? 0 : pace.restMs();
    if (restMs > 0) void rest(restMs);
    const isFree = !isSlow && !isResting;
    const limit = isFree ? Math.min(free, MAX_CLAIMED) : free;
    const claims = limit > 0 ? await store.claim(limit, now(), isFree ? 'all' : 'requested') : [];
    if (isFree && claims.length > 0) pace.begin();
    for (const claim of claims) void start(claim);
    return claims.length === limit;
  }

  async function checkBacklog(): Promise<void> {
    if (performance.now() < nextCheckAt) return;
    nextCheckAt = performance.now() + BACKLOG_INTERVAL_MS;
    await store.bringForward(now());
    const { waiting, failing } = await store.backlog();
    metrics.waiting.set(labels, waiting);
    metrics.failing.set(labels, failing);
  }

  observer.releasers.push('attempts', async () => void (await Promise.all(running)));
  const loop = observer.loop(async () => {
    const isSlow = await isBackfilling();
    const hasMore = await startTasks(concurrency - running.size, isSlow);
    const free = Math.min(concurrency - running.size, MAX_CLAIMED - grouped);
    if (isSlow && !isPausing && free > 0) {
      const claims = await store.claim(free, now(), 'all');
      if (claims.length > 0) void startWithPause(claims);
    }
    await checkBacklog();
    return running.size < concurrency && hasMore;
  });
  return loop;
}

/** Returns a wait that ends at the same time for all that begin it within `GATHER_MS`. */
function createGathering(signal: AbortSignal): () => Promise<void> {
  let gathering: Promise<void> | null = null;
  return () =>
    (gathering ??= sleep(GATHER_MS, signal).then(() => {
      gathering = null;
    }));
}

async function attempt<M, C extends TaskClaim>(
  observer: Observer,
  { store, topic, observe, onPublished, metrics, random = Math.random }: WorkerOptions<M, C>,
  claim: C,
  gather: (() => Promise<void>) | null,
): Promise<void> {
  const { name, log, now, publisher } = observer;
  const { subject } = claim;
  try {
    const signal = AbortSignal.any([observer.signal, AbortSignal.timeout(ATTEMPT_MS)]);
    const message =
      claim.message === null
        ? await observe(subject, claim.task, signal, claim.attempts)
        : topic.schema.parse(claim.message);
    if (message === null) {
      await store.release(claim, now() + NOT_NOW_MS);
      return;
    }
    if (gather !== null) await gather();
    // False: requested again with other facts, or the claim has expired; the new claim observes again.
    if (claim.message === null && !(await store.prepare(claim, message))) return;
    await publisher.publish(topic, [{ key: subject, value: message }]);
    onPublished?.(message);
    await store.done(claim, now(), message);
    metrics.observed.inc({ observer: name });
  } catch (error) {
    if (isPostgresUnavailable(error)) throw error;
    if (observer.signal.aborted) return void (await store.release(claim, now()));
    const failures = claim.attempts + 1;
    const delayMs = backoffMs(failures, OBSERVER_BACKOFF, random());
    const fields = { err: error, observer: name, subject, attempts: failures, delayMs };
    // An error that is not marked retryable needs an operator's look; the task is retried all the same.
    log[isRetryable(error) ? 'warn' : 'error'](fields, 'observation failed, retrying');
    metrics.failures.inc({ observer: name });
    await store.failed(claim, now() + delayMs, errorMessage(error));
  }
}

/** Subjects whose task is stored, so that most batches cost no write but the checkpoint. */
const REMEMBERED = 100_000;

/** Returns a handler of blocks that stores the tasks they lead to, and wakes the worker. */
export function createTaskHandler<T>(
  { log, now, retryWhileUnavailable }: Observer,
  worker: Loop,
  {
    tasksOf,
    keyOf,
    mayReset,
    add,
  }: {
    /** Null for an invalid message. */
    readonly tasksOf: (block: LoggedBlock) => readonly T[] | null;
    readonly keyOf: (task: T) => string;
    /** True for a task that counts although a task with its key is stored. */
    readonly mayReset: (task: T) => boolean;
    /** Returns how many of the tasks are new or to be repeated. */
    readonly add: (tasks: readonly T[], now: number) => Promise<number>;
  },
): BlockHandler {
  let stored = createLruCache<string, true>(REMEMBERED);
  /** By partition, the highest offset that was handled. */
  const handled = new Map<number, number>();
  return async (blocks) => {
    const tasks = new Map<string, T>();
    for (const block of blocks) {
      const { partition, offset } = block;
      // Blocks come again when PostgreSQL lost the checkpoint in a fail-over, and may have lost tasks with it.
      if (offset <= (handled.get(partition) ?? -1)) stored = createLruCache(REMEMBERED);
      handled.set(partition, offset);
      const found = tasksOf(block);
      // The projections halt at this message and report it.
      if (found === null) log.warn({ partition, offset }, 'invalid message skipped');
      for (const task of found ?? []) {
        const key = keyOf(task);
        if (mayReset(task) || !(tasks.has(key) || stored.get(key) === true)) tasks.set(key, task);
      }
    }
    const added = await retryWhileUnavailable(() => add([...tasks.values()], now()));
    for (const key of tasks.keys()) stored.set(key, true);
    if (added > 0) worker.wake();
  };
}
