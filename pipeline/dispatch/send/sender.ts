import { randomUUID } from 'node:crypto';

import type { Clock } from '../../../infra/clock.ts';
import { pause } from '../../../infra/lifecycle.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { storable } from '../../../schemas/text.ts';
import type { RetryWhileUnavailable } from '../../../infra/retry-while-unavailable.ts';
import { claimDeliveries, endAttempts, releaseClaims } from '../deliveries.ts';
import type { Claim, Ended } from '../deliveries.ts';
import { createEndpoints } from './endpoints.ts';
import type { DispatchMetrics } from '../metrics.ts';
import { startRounds } from '../rounds.ts';
import { afterAttempt } from './schedule.ts';

/** What came of one request. */
export interface Answer {
  /** null: there was none. */
  readonly responseCode: number | null;
  /** null: none, or not text. */
  readonly responseBody: string | null;
  /** null: the receiver has it. */
  readonly error: string | null;
}

export interface SenderSettings {
  readonly delaysMs: readonly number[];
  /** For the whole answer. */
  readonly timeoutMs: number;
  /** Attempts at a time, over all endpoints and of each. */
  readonly concurrency: number;
  readonly endpointConcurrency: number;
  /** Deliveries that died in a row, from which on a webhook counts as disabled. */
  readonly deadLimit: number;
  /** Longest time between looks for what is due. */
  readonly pollMs: number;
}

export interface SenderDeps {
  readonly pool: Pool;
  /** Postgres schema of the `webhooks` read model that is served; null: none yet. */
  readonly schema: () => Promise<string | null>;
  /** Makes one attempt, and ends within its time; rejects only when the signal fires. */
  readonly send: (claim: Claim, signal: AbortSignal) => Promise<Answer>;
  readonly clock: Clock;
  readonly retryWhileUnavailable: RetryWhileUnavailable;
  readonly metrics: DispatchMetrics;
  readonly settings: SenderSettings;
}

export interface Sender {
  /** Something may be due. */
  wake(): void;
  /** Waits a moment for what runs; what has not ended by then is given back. */
  stop(): Promise<void>;
}

/** Left over after an attempt's own time, to write down what came of it. */
const LEASE_MARGIN_MS = 20_000;
/** An answer within so long is a quick one. */
const QUICK_MS = 1000;
/** Looks for due deliveries are at least so long apart while attempts end all the time. */
const BREATH_MS = 10;
const GRACE_MS = 3000;
/** Attempts whose ends are written in one transaction. */
const ENDS = 500;

/** Claims what is due, makes the attempts side by side, and writes down what came of them. */
export function startSender(deps: SenderDeps, onFatal: (error: unknown) => void): Sender {
  const { pool, schema, send, clock, retryWhileUnavailable, metrics, settings } = deps;
  const endpoints = createEndpoints({
    most: settings.endpointConcurrency,
    slow: Math.ceil(settings.concurrency / 2),
  });
  const lease = randomUUID();
  const cutting = new AbortController();
  const running = new Set<Promise<void>>();
  /** Deliveries whose attempt runs, or has ended and is not written down: their leases may end, they are not taken again. */
  const held = new Set<string>();
  const ended: Ended[] = [];
  const unmade: Claim[] = [];
  let waiting = new AbortController();
  let writing: Promise<void> | null = null;
  const wake = (): void => waiting.abort();

  async function attempt(claim: Claim): Promise<void> {
    const at = clock.now();
    let answer: Answer;
    try {
      answer = await send(claim, cutting.signal);
    } catch (error) {
      if (!cutting.signal.aborted) throw error;
      unmade.push(claim);
      return;
    }
    const durationMs = clock.now() - at;
    const isSuccess = answer.error === null;
    const { isManual } = claim;
    const next = afterAttempt(claim, { isSuccess, isManual, at: at + durationMs }, settings, () =>
      clock.random(),
    );
    endpoints.ended(claim.webhookId, answer.responseCode !== null && durationMs < QUICK_MS);
    metrics.attempts.inc({ outcome: isSuccess ? 'success' : next.status });
    metrics.duration.observe(durationMs / 1000);
    const responseBody = answer.responseBody === null ? null : storable(answer.responseBody);
    ended.push({ claim, next, at, durationMs, ...answer, responseBody });
    write();
  }

  /** What ends while a transaction writes is in the next one. */
  function write(): void {
    writing ??= (async () => {
      while (ended.length > 0) {
        const some = ended.splice(0, ENDS);
        await retryWhileUnavailable(() => endAttempts(pool, some));
        for (const { claim } of some) held.delete(claim.id);
        wake();
      }
    })()
      .catch(onFatal)
      .finally(() => {
        writing = null;
        if (ended.length > 0) write();
      });
  }

  function start(claim: Claim): void {
    held.add(claim.id);
    endpoints.began(claim.webhookId);
    const run = attempt(claim)
      .catch(onFatal)
      .finally(() => running.delete(run));
    running.add(run);
  }

  /** How many attempts were begun. */
  async function begin(): Promise<number> {
    const places = settings.concurrency - running.size;
    const served = places > 0 ? await schema() : null;
    if (served === null) return 0;
    let begun = 0;
    for (const room of endpoints.rooms()) {
      const most = Math.min(room.most, places - begun);
      if (most === 0) break;
      const claims = await claimDeliveries(pool, {
        ...room,
        most,
        schema: served,
        now: clock.now(),
        lease,
        leaseMs: settings.timeoutMs + LEASE_MARGIN_MS,
        deadLimit: settings.deadLimit,
        held: [...held],
      });
      claims.forEach(start);
      begun += claims.length;
    }
    return begun;
  }

  async function round(signal: AbortSignal): Promise<void> {
    waiting = new AbortController();
    const begun = await begin();
    await (begun > 0
      ? clock.sleep(BREATH_MS, signal)
      : clock.sleep(settings.pollMs, AbortSignal.any([waiting.signal, signal])));
  }

  const rounds = startRounds(round, retryWhileUnavailable, onFatal);

  return {
    wake,
    async stop() {
      await rounds.stop();
      const all = Promise.all(running);
      const over = new AbortController();
      await Promise.race([all, pause(GRACE_MS, over.signal)]);
      over.abort();
      cutting.abort();
      await all;
      while (writing !== null) await writing;
      // Their leases end by themselves where this is not written.
      await releaseClaims(pool, unmade).catch(() => {});
    },
  };
}
