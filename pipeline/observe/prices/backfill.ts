import { z } from 'zod';

import type { Publisher } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { isRetryable } from '../../../schemas/errors.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { retryAfterMs } from '../http.ts';
import { retryPauseMs } from '../retry.ts';
import type { FeedReading, PriceFeed } from './feed.ts';
import { judge } from './guard.ts';
import type { GuardLimits, KnownPrice, Refusal } from './guard.ts';
import { observedMessage } from './message.ts';

export interface BackfillOptions {
  readonly feed: PriceFeed;
  readonly pool: Pool;
  readonly publisher: Publisher;
  readonly limits: GuardLimits;
  readonly tokens: readonly Felt[];
  /** Unix milliseconds; both ends belong to it. */
  readonly from: number;
  readonly to: number;
  readonly stepMs: number;
  readonly log: Logger;
  readonly signal: AbortSignal;
  readonly now: () => number;
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly onProgress: (progress: BackfillProgress) => void;
}

export interface BackfillProgress {
  /** Windows of one token each. */
  readonly done: number;
  readonly total: number;
  /** Of `done`: those that an earlier run had done. */
  readonly skipped: number;
  readonly published: number;
}

export interface BackfillReport extends BackfillProgress {
  readonly refused: Readonly<Partial<Record<Refusal, number>>>;
}

const windowRow = z.object({
  window_start: z.number(),
  last_price: z.string().nullable(),
  last_observed_at: z.number().nullable(),
});

/** The feed may still change what is so young. */
const SETTLED_MS = 3_600_000;
const TRIES = 8;

/**
 * Publishes what a feed knows of the past, window by window of as many points as one call brings, each token from the
 * oldest on, through the same guard as what is read now: a point is young when it was made, and compared with the one
 * before it; a jump wants as many points of its kind as it has doublings. A window that is done is written down and not
 * asked for again; one that was published and not written down is published again, and to its readers, who know a price
 * by its token and time, is the same.
 */
export async function backfillPrices(options: BackfillOptions): Promise<BackfillReport> {
  const { feed, tokens, stepMs, signal } = options;
  const from = Math.ceil(options.from / stepMs) * stepMs;
  const to = Math.floor(options.to / stepMs) * stepMs;
  const windowMs = feed.pointsPerCall * stepMs;
  const starts: number[] = [];
  for (let at = Math.floor(from / windowMs) * windowMs; at <= to; at += windowMs) starts.push(at);

  const limits = { ...options.limits, confirmMs: Math.max(options.limits.confirmMs, stepMs) };
  const refused: Partial<Record<Refusal, number>> = {};
  let [done, skipped, published] = [0, 0, 0];
  const progress = (): BackfillProgress => ({
    done,
    skipped,
    published,
    total: tokens.length * starts.length,
  });

  for (const token of tokens) {
    const earlier = await doneWindows(options, token);
    let known: KnownPrice = { last: lastOf(earlier.get((starts[0] ?? 0) - windowMs)), held: null };
    for (const start of starts) {
      signal.throwIfAborted();
      const before = earlier.get(start);
      if (before === undefined) {
        const range = { from: Math.max(from, start), to: Math.min(to, start + windowMs - stepMs), stepMs };
        const points = await patiently(options, () => feed.history(token, range, signal));
        const judged = judgeAll(token, points, known, limits);
        for (const reason of judged.refused) refused[reason] = (refused[reason] ?? 0) + 1;
        await options.publisher.publish(
          topics.prices,
          judged.accepted.map((price) => ({ key: token, value: observedMessage(feed.source, token, price) })),
        );
        published += judged.accepted.length;
        const isWhole = range.from === start && range.to === start + windowMs - stepMs;
        if (isWhole && options.now() - range.to > SETTLED_MS) {
          await writeDown(options, token, start, judged.accepted.length, judged.known.last);
        }
        ({ known } = judged);
      } else {
        skipped += 1;
        known = { last: lastOf(before) ?? known.last, held: null };
      }
      done += 1;
      options.onProgress(progress());
    }
  }
  return { ...progress(), refused };
}

type Accepted = Parameters<typeof observedMessage>[2];

/** One token's points, oldest first, each against those before it. */
function judgeAll(
  token: Felt,
  points: readonly FeedReading[],
  before: KnownPrice,
  limits: GuardLimits,
): { accepted: Accepted[]; refused: Refusal[]; known: KnownPrice } {
  const accepted: Accepted[] = [];
  const refused: Refusal[] = [];
  let known = before;
  for (const point of points.toSorted((a, b) => (a.observedAt ?? 0) - (b.observedAt ?? 0))) {
    if (point.token !== token) {
      refused.push('other_address');
      continue;
    }
    const verdict = judge(point, known, limits, point.observedAt ?? 0);
    switch (verdict.kind) {
      case 'publish':
        accepted.push(verdict);
        known = { last: { price: verdict.price, observedAt: verdict.observedAt }, held: null };
        break;
      case 'held':
        refused.push('jump');
        known = { ...known, held: verdict.held };
        break;
      case 'refused':
        refused.push(verdict.reason);
        break;
      case 'repeated':
        break;
    }
  }
  return { accepted, refused, known };
}

/** Tries for some minutes; then the command ends, and another goes on from there. */
async function patiently<T>({ sleep, signal, log }: BackfillOptions, work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (error) {
      // What was under way when the signal came fails in words of its own.
      signal.throwIfAborted();
      if (!isRetryable(error) || tries >= TRIES) throw error;
      const pauseMs = Math.max(retryAfterMs(error) ?? 0, retryPauseMs(tries, Math.random()));
      log.warn({ err: error, pauseMs }, 'the price feed was not heard; trying again');
      await sleep(pauseMs, signal);
    }
  }
}

async function doneWindows(
  { pool, feed, stepMs }: BackfillOptions,
  token: Felt,
): Promise<Map<number, z.infer<typeof windowRow>>> {
  const rows = await sqlRows(
    pool,
    windowRow,
    `SELECT window_start, last_price, last_observed_at FROM tds.price_backfilled
     WHERE token = $1 AND source = $2 AND step_ms = $3`,
    [token, feed.source, stepMs],
  );
  return new Map(rows.map((row) => [row.window_start, row]));
}

async function writeDown(
  { pool, feed, stepMs }: BackfillOptions,
  token: Felt,
  start: number,
  points: number,
  last: KnownPrice['last'],
): Promise<void> {
  await pool.query(
    `INSERT INTO tds.price_backfilled (token, source, step_ms, window_start, points, last_price, last_observed_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
    [token, feed.source, stepMs, start, points, last?.price ?? null, last?.observedAt ?? null],
  );
}

function lastOf(row: z.infer<typeof windowRow> | undefined): KnownPrice['last'] {
  if (row === undefined || row.last_price === null || row.last_observed_at === null) return null;
  return { price: row.last_price, observedAt: row.last_observed_at };
}
