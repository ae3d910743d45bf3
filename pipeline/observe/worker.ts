import { pause } from '../../infra/lifecycle.ts';
import type { Logger } from '../../infra/log.ts';
import { isPostgresUnavailable } from '../../infra/postgres/client.ts';
import { isRetryable } from '../../schemas/errors.ts';
import { CLAIM_MS } from './attempts.ts';
import type { Attempts, Claim } from './attempts.ts';
import type { ObserverMetrics } from './metrics.ts';
import { retryPauseMs } from './retry.ts';

export interface WorkerOptions<M> {
  readonly observer: string;
  readonly attempts: Attempts;
  /** Asks the outside world. What it throws is tried again later, however often. */
  observe(subject: string, task: unknown, signal: AbortSignal): Promise<M>;
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

/** Works off one observer's tasks: claim, observe, write down, publish, done. Each task fails and waits on its own. */
export function startWorker<M>(options: WorkerOptions<M>, onFatal: (error: unknown) => void): Worker {
  const { observer, attempts, concurrency, log, metrics } = options;
  const { now = Date.now, random = Math.random, pollMs = 1000 } = options;
  const labels = { observer };
  const stopping = new AbortController();
  const running = new Set<Promise<void>>();
  let waiting = new AbortController();
  let nextCount = 0;
  const wake = (): void => waiting.abort();

  async function attempt(claim: Claim): Promise<void> {
    const signal = AbortSignal.any([stopping.signal, AbortSignal.timeout(ATTEMPT_MS)]);
    try {
      const message =
        claim.message === null
          ? await options.observe(claim.subject, claim.task, signal)
          : options.readMessage(claim.message);
      // Not ours any more: asked for anew with other facts, or claimed by another after too long a time.
      if (claim.message === null && !(await attempts.prepare(claim, message))) return;
      await options.publish(claim.subject, message);
      await attempts.done(claim, now());
      metrics.observed.inc(labels);
    } catch (error) {
      if (isPostgresUnavailable(error)) return waitForClaimToEnd(claim, error);
      await (stopping.signal.aborted ? attempts.release(claim, now()) : fail(claim, error));
    }
  }

  async function fail(claim: Claim, error: unknown): Promise<void> {
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

  function start(claim: Claim): void {
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
