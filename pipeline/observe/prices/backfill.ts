import { z } from 'zod';

import type { Clock } from '../../../infra/clock.ts';
import type { Publisher } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { retry } from '../../../infra/retry.ts';
import { isRetryable } from '../../../schemas/errors.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { retryAfterMs } from '../../http.ts';
import { OBSERVER_BACKOFF } from '../observer.ts';
import type { FeedReading, PriceFeed } from './feed.ts';
import { judge, stateAfter } from './guard.ts';
import type { GuardLimits, GuardState, RefusalReason, Verdict } from './guard.ts';
import { observedMessage } from './messages.ts';

export interface BackfillOptions {
  readonly feed: PriceFeed;
  readonly pool: Pool;
  readonly publisher: Publisher;
  readonly limits: GuardLimits;
  readonly tokens: readonly Felt[];
  /** Unix milliseconds, both inclusive. */
  readonly from: number;
  readonly to: number;
  readonly stepMs: number;
  readonly log: Logger;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly onProgress: (progress: BackfillProgress) => void;
}

/** Counts windows: a window is what one call of the feed brings of one token. */
export interface BackfillProgress {
  readonly done: number;
  readonly total: number;
  /** Of `done`: completed by an earlier run. */
  readonly skipped: number;
  readonly published: number;
}

export interface BackfillReport extends BackfillProgress {
  readonly refused: Readonly<Partial<Record<RefusalReason, number>>>;
}

type Accepted = Extract<Verdict, { kind: 'accepted' }>;
type Last = GuardState['last'];

const windowRow = z.object({
  window_start: z.number(),
  last_price: z.string().nullable(),
  last_observed_at: z.number().nullable(),
});

/** The feed may still revise younger points. */
const SETTLED_MS = 3_600_000;
/** Some minutes; another run continues where this one ends. */
const MAX_ATTEMPTS = 8;

/**
 * Publishes the feed's price history, per token from the oldest window to the newest, through the same guard as current
 * prices; the age of a point is taken at its own time. A completed window with prices is recorded and skipped by later runs. A
 * window that was published but not recorded is published again, which is idempotent: readers identify a price by token and time.
 */
export async function backfillPrices(options: BackfillOptions): Promise<BackfillReport> {
  const { tokens, signal } = options;
  const { starts, windowMs } = windowsOf(options);
  const refused: Partial<Record<RefusalReason, number>> = {};
  let [done, skipped, published] = [0, 0, 0];
  const progress = (): BackfillProgress => ({
    done,
    skipped,
    published,
    total: tokens.length * starts.length,
  });

  for (const token of tokens) {
    const completed = await completedWindows(options, token);
    const [, last = null] = [...completed].findLast(([start]) => start < (starts[0] ?? 0)) ?? [];
    let state: GuardState = { last, candidate: null };
    for (const start of starts) {
      signal.throwIfAborted();
      const lastOfCompleted = completed.get(start);
      if (lastOfCompleted === undefined) {
        const judged = await backfillWindow(options, { token, start, windowMs }, state);
        for (const reason of judged.refused) refused[reason] = (refused[reason] ?? 0) + 1;
        published += judged.accepted.length;
        ({ state } = judged);
      } else {
        skipped += 1;
        state = { last: lastOfCompleted ?? state.last, candidate: null };
      }
      done += 1;
      options.onProgress(progress());
    }
  }
  return { ...progress(), refused };
}

/** Window starts are multiples of the window, so that every run cuts the same windows. */
function windowsOf({ feed, from, to, stepMs }: BackfillOptions): { starts: number[]; windowMs: number } {
  const windowMs = feed.pointsPerCall * stepMs;
  const begin = Math.ceil(from / stepMs) * stepMs;
  const first = Math.floor(begin / windowMs) * windowMs;
  const starts: number[] = [];
  // There is no whole step between `from` and `to` where `begin` is later.
  for (let start = first; Math.max(start, begin) <= to; start += windowMs) starts.push(start);
  return { starts, windowMs };
}

interface Judged {
  readonly accepted: readonly Accepted[];
  readonly refused: readonly RefusalReason[];
  readonly state: GuardState;
}

async function backfillWindow(
  options: BackfillOptions,
  { token, start, windowMs }: { token: Felt; start: number; windowMs: number },
  state: GuardState,
): Promise<Judged> {
  const { feed, stepMs, signal, log, clock } = options;
  const end = start + windowMs - stepMs;
  const range = {
    from: Math.max(Math.ceil(options.from / stepMs) * stepMs, start),
    to: Math.min(Math.floor(options.to / stepMs) * stepMs, end),
    stepMs,
  };
  const points = await retry(() => feed.history(token, range, signal), {
    isRetryable: (error) => isRetryable(error) && !signal.aborted,
    maxAttempts: MAX_ATTEMPTS,
    ...OBSERVER_BACKOFF,
    minDelayMs: (error) => retryAfterMs(error) ?? 0,
    signal,
    clock,
    onRetry: (err, { delayMs }) => log.warn({ err, delayMs }, 'price feed unavailable, retrying'),
  }).catch((error: unknown) => {
    // A call that was cancelled by the signal fails with an error of its own.
    signal.throwIfAborted();
    throw error;
  });
  const judged = judgeHistory(token, points, state, { limits: options.limits, now: clock.wallTime() });
  await options.publisher.publish(
    topics.prices,
    judged.accepted.map((price) => ({
      key: token,
      value: observedMessage(feed.source, token, price, { cause: 'backfill' }),
    })),
  );
  const isWhole = range.from === start && range.to === end;
  // The feed may add prices later, and other limits may accept what these refuse.
  if (isWhole && judged.accepted.length > 0 && clock.wallTime() - range.to > SETTLED_MS)
    await recordWindow(options, token, start, judged.accepted.length, judged.state.last);
  return judged;
}

/**
 * Judges the points of one token, oldest first, each against those before it and as of its own time, or of now if that
 * is in the future.
 */
function judgeHistory(
  token: Felt,
  points: readonly FeedReading[],
  previous: GuardState,
  { limits, now }: { readonly limits: GuardLimits; readonly now: number },
): Judged {
  const accepted: Accepted[] = [];
  const refused: RefusalReason[] = [];
  let state = previous;
  for (const point of points.toSorted((a, b) => (a.observedAt ?? 0) - (b.observedAt ?? 0))) {
    if (point.token !== token) {
      refused.push('other_address');
      continue;
    }
    const verdict = judge(point, state, limits, Math.min(point.observedAt ?? 0, now));
    if (verdict.kind === 'accepted') accepted.push(verdict);
    if (verdict.kind === 'refused') refused.push(verdict.reason);
    state = stateAfter(state, verdict);
  }
  return { accepted, refused, state };
}

/** Starts of completed windows with prices, ascending, with the last price of each. */
async function completedWindows(
  { pool, feed, stepMs }: BackfillOptions,
  token: Felt,
): Promise<ReadonlyMap<number, Last>> {
  const rows = await sqlRows(
    pool,
    windowRow,
    `SELECT window_start, last_price, last_observed_at FROM tds.price_backfilled
     WHERE token = $1 AND source = $2 AND step_ms = $3 AND points > 0
     ORDER BY window_start`,
    [token, feed.source, stepMs],
  );
  return new Map(
    rows.map(({ window_start, last_price: price, last_observed_at: observedAt }) => [
      window_start,
      price === null || observedAt === null ? null : { price, observedAt },
    ]),
  );
}

async function recordWindow(
  { pool, feed, stepMs }: BackfillOptions,
  token: Felt,
  start: number,
  points: number,
  last: Last,
): Promise<void> {
  await pool.query(
    `INSERT INTO tds.price_backfilled (token, source, step_ms, window_start, points, last_price, last_observed_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (token, source, step_ms, window_start) DO UPDATE
     SET points = excluded.points, last_price = excluded.last_price, last_observed_at = excluded.last_observed_at`,
    [token, feed.source, stepMs, start, points, last?.price ?? null, last?.observedAt ?? null],
  );
}
