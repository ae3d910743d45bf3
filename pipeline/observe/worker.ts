import { pause } from '../../infra/lifecycle.ts';
import type { Logger } from '../../infra/log.ts';
import { isPostgresUnavailable } from '../../infra/postgres/client.ts';
import { isRetryable } from '../../schemas/errors.ts';
import { CLAIM_MS } from './attempts.ts';
import type { Claim } from './attempts.ts';
import type { ObserverMetrics } from './metrics.ts';
import { retryPauseMs } from './retry.ts';

/** Where tasks are kept. Methods that end a claim answer false when it was lost meanwhile. */
export interface TaskStore<C extends Claim, M> {
  /** Due tasks, each for one claimant. */
  claim(limit: number, now: number): Promise<C[]>;
  /** Writes the message down; it is the one that will be published. */
  prepare(claim: C, message: M): Promise<boolean>;
  /** The log has the message. */
  done(claim: C, now: number, message: M): Promise<boolean>;
  failed(claim: C, nextAt: number, error: string): Promise<boolean>;
  /** Gives a task back untried, due at that time. */
  release(claim: C, at: number): Promise<boolean>;
  /** Tasks to be done, and how many of them have failed before. */
  backlog(): Promise<{ waiting: number; failing: number }>;
}

export interface WorkerOptions<M, C extends Claim = Claim> {
  readonly observer: string;
  readonly attempts: TaskStore<C, M>;
  /** Asks the outside world. What it throws is tried again later, however often; null: not now, without counting. */
  observe(subject: string, task: C['task'], signal: AbortSignal): Promise<M | null>;
  /** Resolves when the log has it. */
  publish(subject: string, message: M): Promise<void>;
  /** Reads a message that was written down before. */
  readMessage(written: unknown): M;
  /** Tasks worked on side by side. */
  readonly concurrency: number;
  readonly log: Logger;
  readonly metrics: ObserverMetrics;
  readonly now?: () => number;
  readonly random?: () => number;
  /** Longest time between looks for due tasks. */
  readonly pollMs?: number;
}

export interface Worker {
  /** There may be something to do. */
  wake(): void;
  /** Gives back what is not finished, and resolves when nothing runs. */
  stop(): Promise<void>;
}

/** One attempt ends before its claim does, with time to write down what came of it. */
const ATTEMPT_MS = CLAIM_MS - 15_000;
const COUNT_EVERY_MS = 5000;

/** What could not be taken up is looked at again after so long. */
const NOT_NOW_MS = 1000;

/** Works off one observer's tasks: claim, observe, write down, publish, done. Each task fails and waits on its own. */
export function startWorker<M, C extends Claim = Claim>(
  options: WorkerOptions<M, C>,
  onFatal: (error: unknown) => void,
): Worker {
  const { observer, attempts, concurrency, log, metrics } = options;
  const { now = Date.now, random = Math.random, pollMs = 1000 } = options;
  const labels = { observer };
  const stopping = new AbortController();
  const running = new Set<Promise<void>>();
  let waiting = new AbortController();
  let nextCount = 0;
  const wake = (): void => waiting.abort();

  async function attempt(claim: C): Promise<void> {
    const signal = AbortSignal.any([stopping.signal, AbortSignal.timeout(ATTEMPT_MS)]);
    try {
      const message =
        claim.message === null
          ? await options.observe(claim.subject, claim.task, signal)
          : options.readMessage(claim.message);
      if (message === null) {
        await attempts.release(claim, now() + NOT_NOW_MS);
        return;
      }
      // Not ours any more: asked for anew with other facts, or claimed by another after too long a time.
      if (claim.message === null && !(await attempts.prepare(claim, message))) return;
      await options.publish(claim.subject, message);
      await attempts.done(claim, now(), message);
      metrics.observed.inc(labels);
    } catch (error) {
      if (isPostgresUnavailable(error)) return waitForClaimToEnd(claim, error);
      await (stopping.signal.aborted ? attempts.release(claim, now()) : fail(claim, error));
    }
  }

  async function fail(claim: C, error: unknown): Promise<void> {
    const pauseMs = retryPauseMs(claim.attempts + 1, random());
    const what = { err: error, observer, subject: claim.subject, attempts: claim.attempts + 1, pauseMs };
    // An error that does not call itself passing is worth an operator's look; it is tried again all the same.
    if (isRetryable(error)) log.warn(what, 'observation failed; trying again later');
    else log.error(what, 'observation failed; trying again later');
    metrics.failures.inc(labels);
    await attempts.failed(claim, now() + pauseMs, error instanceof Error ? error.message : String(error));
  }

  function waitForClaimToEnd(claim: Claim, error: unknown): void {
    log.warn(
      { err: error, observer, subject: claim.subject },
      'Postgres does not answer; the claim will end',
    );
  }

  function start(claim: C): void {
    const run = attempt(claim)
      .catch((error: unknown) => {
        if (isPostgresUnavailable(error)) waitForClaimToEnd(claim, error);
        else onFatal(error);
      })
      .finally(() => {
        running.delete(run);
        wake();
      });
    running.add(run);
  }

  async function round(): Promise<void> {
    const free = concurrency - running.size;
    const claims = free > 0 ? await attempts.claim(free, now()) : [];
    claims.forEach(start);
    await countBacklog();
    if (running.size >= concurrency || claims.length < free) await pause(pollMs, waiting.signal);
  }

  /** Counting reads every task that waits: not in every round. */
  async function countBacklog(): Promise<void> {
    if (performance.now() < nextCount) return;
    nextCount = performance.now() + COUNT_EVERY_MS;
    const { waiting: tasks, failing } = await attempts.backlog();
    metrics.waiting.set(labels, tasks);
    metrics.failing.set(labels, failing);
  }

  const looping = (async () => {
    while (!stopping.signal.aborted) {
      waiting = new AbortController();
      try {
        await round();
      } catch (error) {
        if (!isPostgresUnavailable(error)) throw error;
        log.warn({ err: error, observer }, 'Postgres does not answer; trying again');
        await pause(pollMs, stopping.signal);
      }
    }
  })().catch(onFatal);

  return {
    wake,
    async stop() {
      stopping.abort();
      wake();
      await looping;
      await Promise.all(running);
    },
  };
}
