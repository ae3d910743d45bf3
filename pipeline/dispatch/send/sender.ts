import { randomUUID } from 'node:crypto';

import { inBatches } from '../../../infra/batches.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { storable } from '../../../schemas/text.ts';
import { startLoop } from '../../../infra/loop.ts';
import type { DispatchDeps } from '../deps.ts';
import { claimDeliveries, firstDueAt, releaseClaims } from './claims.ts';
import type { DeliveryClaim } from './claims.ts';
import { createEndpointLimits } from './endpoint-limits.ts';
import { storeOutcomes } from './outcomes.ts';
import type { AttemptOutcome } from './outcomes.ts';
import { afterAttempt } from './schedule.ts';

/** The result of one request. */
export interface SendResult {
  /** null: no response. */
  readonly responseCode: number | null;
  /** null: none, or not text. */
  readonly responseBody: string | null;
  /** null: the receiver accepted the delivery. */
  readonly error: string | null;
}

export interface SenderSettings {
  readonly delaysMs: readonly number[];
  /** For the whole response. */
  readonly timeoutMs: number;
  /** Attempts at a time, over all endpoints and of each. */
  readonly concurrency: number;
  readonly endpointConcurrency: number;
  /** Dead deliveries in a row from which on a webhook counts as disabled. */
  readonly deadLimit: number;
}

export interface SenderDeps extends Pick<
  DispatchDeps,
  'pool' | 'clock' | 'metrics' | 'retryWhileUnavailable'
> {
  /** Postgres schema of the served build of `webhooks`; null: not built yet. */
  readonly schema: () => Promise<string | null>;
  /** Makes one attempt within its timeout; rejects only when the signal fires. */
  readonly send: (claim: DeliveryClaim, signal: AbortSignal) => Promise<SendResult>;
  readonly settings: SenderSettings;
}

export interface Sender {
  /** Polls at once: deliveries may be due. */
  wake(): void;
  /** Waits `STOP_GRACE_MS` for running attempts; then aborts them and releases their leases. */
  stop(): Promise<void>;
}

/** Added to the attempt's timeout, for storing its outcome. */
const LEASE_MARGIN_MS = 20_000;
/** A response within this time is a fast one. */
const FAST_MS = 1000;
/** Shortest time between two polls that find deliveries. */
const MIN_POLL_MS = 10;
/** Between two polls while what is due cannot be claimed. */
const BLOCKED_POLL_MS = 250;
/** Between two polls while nothing is due: finds what another process has made due but does not get to. */
const IDLE_POLL_MS = 2000;
const STOP_GRACE_MS = 3000;
/** Outcomes stored in one transaction. */
const OUTCOMES_PER_TRANSACTION = 500;

/** Claims due deliveries, makes their attempts concurrently, and stores the outcomes. */
export function startSender(deps: SenderDeps, onFatal: (error: unknown) => void): Sender {
  const { pool, schema, clock, retryWhileUnavailable, settings } = deps;
  const limits = createEndpointLimits({
    maxPerEndpoint: settings.endpointConcurrency,
    maxSlow: Math.ceil(settings.concurrency / 2),
    maxSlowAndFurther: Math.ceil(settings.concurrency * 0.75),
  });
  const lease = randomUUID();
  const aborting = new AbortController();
  const running = new Set<Promise<void>>();
  /** Deliveries with an attempt that runs, or with an outcome that is not stored: not claimed again when their lease ends. */
  const inFlight = new Set<string>();
  const aborted: DeliveryClaim[] = [];
  const outcomes = createOutcomeWriter(async (batch) => {
    await retryWhileUnavailable(() => storeOutcomes(pool, batch));
    for (const { claim } of batch) inFlight.delete(claim.id);
    polling.wake();
  }, onFatal);

  async function run(claim: DeliveryClaim): Promise<void> {
    const outcome = await makeAttempt(deps, claim, aborting.signal);
    if (outcome === null) {
      aborted.push(claim);
      return;
    }
    const { responseCode, durationMs } = outcome;
    limits.attemptEnded(claim.webhookId, responseCode !== null && durationMs < FAST_MS);
    outcomes.add(outcome);
  }

  function start(claim: DeliveryClaim): void {
    inFlight.add(claim.id);
    limits.attemptStarted(claim.webhookId);
    const attempt = run(claim)
      .catch(onFatal)
      .finally(() => running.delete(attempt));
    running.add(attempt);
  }

  /** Returns the number of attempts started. */
  async function startDueAttempts(): Promise<number> {
    const free = settings.concurrency - running.size;
    const served = free > 0 ? await schema() : null;
    if (served === null) return 0;
    let started = 0;
    for (const capacity of limits.capacities()) {
      const limit = Math.min(capacity.limit, free - started);
      if (limit === 0) break;
      const claims = await claimDeliveries(pool, {
        ...capacity,
        limit,
        schema: served,
        now: clock.wallTime(),
        lease,
        leaseMs: settings.timeoutMs + LEASE_MARGIN_MS,
        deadLimit: settings.deadLimit,
        inFlight: [...inFlight],
      });
      claims.forEach(start);
      started += claims.length;
    }
    return started;
  }

  const polling = startLoop({
    async round(signal) {
      if ((await startDueAttempts()) === 0) return pollDelay(await firstDueAt(pool), clock.wallTime());
      await clock.sleep(MIN_POLL_MS, signal);
      return 0;
    },
    retryWhileUnavailable,
    onFatal,
    clock,
  });

  return {
    wake: () => polling.wake(),
    async stop() {
      await polling.stop();
      await settledWithin(STOP_GRACE_MS, running);
      aborting.abort();
      await Promise.all(running);
      await outcomes.flushed();
      // Best effort: leases that are not released expire.
      await releaseClaims(pool, aborted).catch(() => {});
    },
  };
}

function pollDelay(firstDue: number | null, now: number): number {
  return Math.min(Math.max((firstDue ?? Number.POSITIVE_INFINITY) - now, BLOCKED_POLL_MS), IDLE_POLL_MS);
}

/** Resolves when all of them have ended, or after a time. */
async function settledWithin(ms: number, running: Iterable<Promise<void>>): Promise<void> {
  const ended = new AbortController();
  await Promise.race([Promise.all(running), sleep(ms, ended.signal)]);
  ended.abort();
}

/** Null where the signal has aborted the attempt. */
async function makeAttempt(
  { send, clock, metrics, settings }: SenderDeps,
  claim: DeliveryClaim,
  signal: AbortSignal,
): Promise<AttemptOutcome | null> {
  const startedAt = clock.wallTime();
  const beginMs = clock.now();
  let result: SendResult;
  try {
    result = await send(claim, signal);
  } catch (error) {
    if (!signal.aborted) throw error;
    return null;
  }
  const durationMs = clock.now() - beginMs;
  const isSuccess = result.error === null;
  const ended = { isSuccess, isManual: claim.isManual, at: clock.wallTime() };
  const next = afterAttempt(claim, ended, settings, () => clock.random());
  metrics.attempts.inc({ outcome: isSuccess ? 'success' : next.status });
  metrics.duration.observe(durationMs / 1000);
  const responseBody = result.responseBody === null ? null : storable(result.responseBody);
  return { claim, next, startedAt, durationMs, ...result, responseBody };
}

/** Stores outcomes in batches. */
function createOutcomeWriter(
  store: (batch: readonly AttemptOutcome[]) => Promise<void>,
  onFatal: (error: unknown) => void,
): { add(outcome: AttemptOutcome): void; flushed(): Promise<unknown> } {
  const writing = new Set<Promise<void>>();
  const write = inBatches<AttemptOutcome, void>(
    async (batch) => {
      await store(batch);
      return batch.map(() => {});
    },
    { most: OUTCOMES_PER_TRANSACTION, failsAll: () => true },
  );
  return {
    add(outcome) {
      const written = write(outcome)
        .catch(onFatal)
        .finally(() => writing.delete(written));
      writing.add(written);
    },
    flushed: () => Promise.all(writing),
  };
}
