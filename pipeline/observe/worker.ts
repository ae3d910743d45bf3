import type { Logger } from '../../infra/log.ts';
import { isPostgresUnavailable } from '../../infra/postgres/client.ts';
import { backoffMs } from '../../infra/retry.ts';
import { isRetryable } from '../../schemas/errors.ts';
import { CLAIM_MS } from './task-store.ts';
import type { Claim } from './task-store.ts';
import { OBSERVER_BACKOFF, startPollLoop } from './loops.ts';
import type { ObserverMetrics } from './metrics.ts';

/** Tasks in a database. The methods that end a claim return false when the claim has expired and was taken over. */
export interface TaskStore<C extends Claim, M> {
  claim(limit: number, now: number): Promise<C[]>;
  /** Stores the message that is about to be published. */
  prepare(claim: C, message: M): Promise<boolean>;
  /** Records that the message is published. */
  done(claim: C, now: number, message: M): Promise<boolean>;
  failed(claim: C, nextAt: number, error: string): Promise<boolean>;
  /** Returns a task without counting an attempt; it is due at `at`. */
  release(claim: C, at: number): Promise<boolean>;
  /** Counts open tasks, and those of them with a failed attempt. */
  backlog(): Promise<{ waiting: number; failing: number }>;
}

export interface WorkerOptions<M, C extends Claim = Claim> {
  readonly observer: string;
  readonly store: TaskStore<C, M>;
  /** Makes the observation. Throws to be retried with backoff; null to be retried soon, without counting an attempt. */
  observe(subject: string, task: C['task'], signal: AbortSignal): Promise<M | null>;
  /** Resolves when Kafka has acknowledged. */
  publish(subject: string, message: M): Promise<void>;
  /** Parses a stored message. */
  parseMessage(stored: unknown): M;
  /** Upper bound of tasks in progress. */
  readonly concurrency: number;
  readonly log: Logger;
  readonly metrics: ObserverMetrics;
  readonly now?: () => number;
  readonly random?: () => number;
  /** Upper bound of the delay until a due task is noticed. */
  readonly pollMs?: number;
}

export interface Worker {
  /** Looks for due tasks at once. */
  wake(): void;
  /** Releases unfinished tasks, and resolves when none is in progress. */
  stop(): Promise<void>;
}

/** Ends before the claim, with time to record the outcome. */
const ATTEMPT_MS = CLAIM_MS - 15_000;
/** Counting the backlog reads every open task. */
const BACKLOG_INTERVAL_MS = 5000;
const NOT_NOW_MS = 1000;

/** Processes the tasks of one observer: claim, observe, store, publish, done. Each task has its own backoff. */
export function startWorker<M, C extends Claim = Claim>(
  options: WorkerOptions<M, C>,
  onFatal: (error: unknown) => void,
): Worker {
  const { observer, store, concurrency, log, metrics } = options;
  const { now = Date.now, random = Math.random, pollMs = 1000 } = options;
  const labels = { observer };
  const stopping = new AbortController();
  const running = new Set<Promise<void>>();
  let nextCountAt = 0;

  async function attempt(claim: C): Promise<void> {
    const signal = AbortSignal.any([stopping.signal, AbortSignal.timeout(ATTEMPT_MS)]);
    try {
      const message =
        claim.message === null
          ? await options.observe(claim.subject, claim.task, signal)
          : options.parseMessage(claim.message);
      if (message === null) {
        await store.release(claim, now() + NOT_NOW_MS);
        return;
      }
      // False: requested again with other facts, or the claim has expired; the new claim observes again.
      if (claim.message === null && !(await store.prepare(claim, message))) return;
      await options.publish(claim.subject, message);
      await store.done(claim, now(), message);
      metrics.observed.inc(labels);
    } catch (error) {
      if (isPostgresUnavailable(error)) throw error;
      await (stopping.signal.aborted ? store.release(claim, now()) : fail(claim, error));
    }
  }

  async function fail(claim: C, error: unknown): Promise<void> {
    const failures = claim.attempts + 1;
    const delayMs = backoffMs(failures, OBSERVER_BACKOFF, random());
    const fields = { err: error, observer, subject: claim.subject, attempts: failures, delayMs };
    // An error that is not marked retryable needs an operator's look; the task is retried all the same.
    log[isRetryable(error) ? 'warn' : 'error'](fields, 'observation failed, retrying');
    metrics.failures.inc(labels);
    await store.failed(claim, now() + delayMs, error instanceof Error ? error.message : String(error));
  }

  function start(claim: C): void {
    const run = attempt(claim)
      .catch((error: unknown) => {
        if (!isPostgresUnavailable(error)) return onFatal(error);
        const fields = { err: error, observer, subject: claim.subject };
        log.warn(fields, 'PostgreSQL unavailable, task is retried when its claim expires');
      })
      .finally(() => {
        running.delete(run);
        loop.wake();
      });
    running.add(run);
  }

  async function round(): Promise<boolean> {
    const free = concurrency - running.size;
    const claims = free > 0 ? await store.claim(free, now()) : [];
    claims.forEach(start);
    await countBacklog();
    return running.size < concurrency && claims.length === free;
  }

  async function countBacklog(): Promise<void> {
    if (performance.now() < nextCountAt) return;
    nextCountAt = performance.now() + BACKLOG_INTERVAL_MS;
    const { waiting, failing } = await store.backlog();
    metrics.waiting.set(labels, waiting);
    metrics.failing.set(labels, failing);
  }

  const loop = startPollLoop({
    component: `${observer} observer`,
    round,
    pollMs,
    log,
    signal: stopping.signal,
    onFatal,
  });

  return {
    wake: () => loop.wake(),
    async stop() {
      stopping.abort();
      await loop.finished;
      await Promise.all(running);
    },
  };
}
