import PQueue from 'p-queue';

import { sleep } from '../../../infra/lifecycle.ts';
import type { Registry } from '../../../infra/metrics.ts';
import { backoffMs } from '../../../infra/retry.ts';
import { AppError, isRetryable } from '../../../schemas/errors.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { createAlarms } from '../../../infra/health/alarms.ts';
import type { Alarms } from '../../../infra/health/alarms.ts';
import { MAX_RETRY_AFTER_MS, retryAfterMs } from '../../http.ts';
import { OBSERVER_BACKOFF } from '../observer.ts';
import type { Observer } from '../observer.ts';
import { createPendingRequests, storePending } from '../pending.ts';
import type { CallerRequest } from '../pending.ts';
import type { FeedReading, PriceFeed } from './feed.ts';
import { judgeAnswer } from './guard.ts';
import type { GuardLimits } from './guard.ts';
import { observedMessage, unchangedMessage } from './messages.ts';
import { createPriceMetrics } from './metrics.ts';
import {
  claimTokens,
  clearAlarmsOfUncommon,
  countRequested,
  priceStates,
  scheduleRequested,
  setCommonTokens,
  settleClaims,
} from './store.ts';
import type { Answered, TokenClaim, Settlement } from './store.ts';

export interface PriceReaderOptions {
  readonly feed: PriceFeed;
  readonly limits: GuardLimits;
  readonly intervalMs: number;
  /** Tokens that are read periodically; null while no read model of tokens is served. */
  readonly commonTokens: () => Promise<readonly Felt[] | null>;
  readonly metrics: Registry;
}

export interface PriceRequest extends CallerRequest {
  readonly token: Felt;
}

export interface PriceReader {
  /** Adds a request to the line of its caller. */
  request(request: PriceRequest): void;
  /** Makes as many requested tokens due as one call of the feed has room for; answers those that were just read. */
  schedule(): Promise<void>;
  /** Reads one batch of due tokens; false when there was nothing to read, or the feed or Kafka failed. */
  round(): Promise<boolean>;
}

/** Lower bound of the time between two calls of the feed, however many requests there are. */
const CALL_SPACING_MS = 250;
const REFRESH_COMMON_MS = 10_000;
/** A request within this time of the last reading of its token is answered by that reading. */
const WINDOW_MS = 10_000;
const KAFKA_RETRY_MS = 5000;
const FEED_ALARM = 'prices.feed';
const REFUSED_ALARM = 'prices.refused:';

/** Reads due tokens from the feed, publishes what the guard accepts, and raises alarms for what it refuses. */
export function createPriceReader(observer: Observer, options: PriceReaderOptions): PriceReader {
  const { feed, limits, intervalMs } = options;
  const { pool, publisher, retryWhileUnavailable, log, now } = observer;
  const metrics = createPriceMetrics(options.metrics);
  const alarms = createAlarms(pool);
  const refreshCommonTokens = createRefresh(observer, options, metrics);
  const unclaim = async (claims: readonly TokenClaim[], dueAt: number): Promise<void> => {
    const settlements = claims.map((claim) => ({ claim, verdict: null, dueAt }));
    await retryWhileUnavailable(() => settleClaims(pool, settlements, now()));
  };
  const callFeed = createFeedCalls(observer, { feed, metrics, alarms, unclaim });
  const requests = createRequests(observer, options);
  const answer = createAnswers(observer, feed);
  /** One at a time: two that count the room together would fill it twice. */
  const scheduling = new PQueue({ concurrency: 1 });
  const schedule = (): Promise<void> =>
    scheduling.add(async () => {
      for (let answered = await requests.schedule(); answered !== null; answered = await requests.schedule())
        await answer(answered);
    });

  /** False where Kafka failed: the prices are read again later. */
  async function publish(settlements: readonly Settlement[]): Promise<boolean> {
    const messages = messagesOf(feed.source, settlements, now());
    try {
      if (messages.length > 0) await publisher.publish(topics.prices, messages);
      metrics.published.inc(settlements.filter(({ verdict }) => verdict?.kind === 'accepted').length);
      return true;
    } catch (error) {
      if (!isRetryable(error)) throw error;
      log.warn({ err: error }, 'prices not published, reading them again later');
      await unclaim(
        settlements.map(({ claim }) => claim),
        now() + KAFKA_RETRY_MS,
      );
      return false;
    }
  }

  /** Refusals of common tokens are alarms until the token has a valid price again. */
  async function updateAlarms(settlements: readonly Settlement[]): Promise<void> {
    const resolved: string[] = [FEED_ALARM];
    for (const { claim, verdict } of settlements) {
      const { token, common } = claim;
      if (verdict?.kind !== 'refused') {
        resolved.push(REFUSED_ALARM + token);
        continue;
      }
      const { reason, detail } = verdict;
      metrics.refused.inc({ reason });
      log.info({ contract: token, reason, detail }, 'price refused');
      // A feed need not know every token.
      if (common && reason !== 'untracked') await alarms.raise(REFUSED_ALARM + token, `${reason}: ${detail}`);
    }
    await alarms.clear(resolved);
  }

  return {
    request: (request) => requests.add(request),
    schedule,
    async round() {
      await refreshCommonTokens();
      await schedule();
      const called = await callFeed(() => claimTokens(pool, feed.tokensPerCall, now()));
      if (called === null) return false;
      const settlements = judgeAnswer(called.claims, called.readings, limits, now()).map(
        ({ claim, verdict }): Settlement => {
          // An uncommon token is read again until its jump is confirmed or dropped.
          const isJump = verdict.kind === 'refused' && verdict.reason === 'jump';
          return { claim, verdict, dueAt: claim.common || isJump ? now() + intervalMs : null };
        },
      );
      if (!(await publish(settlements))) return false;
      await answer(await retryWhileUnavailable(() => settleClaims(pool, settlements, now())));
      await retryWhileUnavailable(() => updateAlarms(settlements));
      return true;
    },
  };
}

/** Returns a function that publishes answers to requests. A lost answer is requested again by the client. */
function createAnswers({ publisher, log }: Observer, { source }: PriceFeed) {
  return async (answered: readonly Answered[]): Promise<void> => {
    if (answered.length === 0) return;
    const messages = answered.map(({ token, readAt, requestedAt }) => ({
      key: token,
      value: unchangedMessage(source, token, { reason: 'repeated', readAt, requestedAt }),
    }));
    await publisher.publish(topics.prices, messages).catch((error: unknown) => {
      if (!isRetryable(error)) throw error;
      log.warn({ err: error }, 'price requests not answered: Kafka unavailable');
    });
  };
}

/** Requests in lines of their callers, from which as many are scheduled in turn as one call of the feed has room for. */
function createRequests(
  { pool, now }: Pick<Observer, 'pool' | 'now'>,
  { feed }: Pick<PriceReaderOptions, 'feed'>,
) {
  const pending = createPendingRequests<PriceRequest>({ keyOf: ({ token }) => token });
  return {
    add: (request: PriceRequest) => pending.add(request, now()),
    /** Null: no request waits, or there is no room. */
    async schedule(): Promise<readonly Answered[] | null> {
      if (pending.size() === 0) return null;
      const limit = feed.tokensPerCall - (await countRequested(pool, now()));
      return await storePending(pending, { limit, now: now() }, async (taken) => {
        const requested = new Map(taken.map(({ token, requestedAt }) => [token, requestedAt]));
        return await scheduleRequested(pool, requested, WINDOW_MS, now());
      });
    },
  };
}

/** Returns a function that updates the set of common tokens, at most every few seconds. */
function createRefresh(
  { pool, now }: Observer,
  { commonTokens, intervalMs }: PriceReaderOptions,
  metrics: ReturnType<typeof createPriceMetrics>,
): () => Promise<void> {
  let refreshedAt = -Infinity;
  return async () => {
    // Absolute: the clock may be set back.
    if (Math.abs(now() - refreshedAt) < Math.min(REFRESH_COMMON_MS, intervalMs)) return;
    const tokens = await commonTokens();
    if (tokens === null) return;
    await setCommonTokens(pool, tokens, now(), Math.max(intervalMs, MAX_RETRY_AFTER_MS));
    await clearAlarmsOfUncommon(pool, REFUSED_ALARM);
    refreshedAt = now();
    metrics.tokens.reset();
    for (const { refusal, tokens: count } of await priceStates(pool))
      metrics.tokens.set({ state: refusal ?? 'ok' }, count);
  };
}

/** Returns a function that calls the feed for claimed tokens; null where none is due, or the feed failed. */
function createFeedCalls(
  { retryWhileUnavailable, log, signal, now }: Observer,
  {
    feed,
    metrics,
    alarms,
    unclaim,
  }: {
    readonly feed: PriceFeed;
    readonly metrics: ReturnType<typeof createPriceMetrics>;
    readonly alarms: Alarms;
    readonly unclaim: (claims: readonly TokenClaim[], dueAt: number) => Promise<void>;
  },
) {
  let calledAt = -Infinity;
  let failures = 0;
  let failedAt = -Infinity;
  let delayMs = 0;
  return async (
    claim: () => Promise<TokenClaim[]>,
  ): Promise<{
    readonly claims: readonly TokenClaim[];
    readonly readings: readonly FeedReading[];
  } | null> => {
    if (Math.abs(now() - failedAt) < delayMs) return null;
    const claims = await claim();
    if (claims.length === 0) return null;
    await sleep(Math.max(0, calledAt + CALL_SPACING_MS - performance.now()), signal);
    calledAt = performance.now();
    try {
      const tokens = claims.map(({ token }) => token);
      const readings = await feed.current(tokens, signal);
      failures = 0;
      metrics.calls.inc({ outcome: 'ok' });
      return { claims, readings };
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      // A call that is cancelled by a stop is not a failure of the feed.
      if (signal.aborted) {
        await unclaim(claims, now());
        return null;
      }
      failures += 1;
      const backoff = backoffMs(failures, OBSERVER_BACKOFF, Math.random());
      delayMs = Math.max(retryAfterMs(error) ?? 0, backoff);
      failedAt = now();
      await unclaim(claims, failedAt + delayMs);
      metrics.calls.inc({ outcome: error.code });
      log.warn({ err: error, failures, delayMs }, 'price feed unavailable, retrying');
      await retryWhileUnavailable(() => alarms.raise(FEED_ALARM, `unavailable: ${error.message}`));
      return null;
    }
  };
}

/** The messages about settled claims: new prices, and answers to requests for which there is none. */
function messagesOf(source: string, settlements: readonly Settlement[], readAt: number) {
  return settlements.flatMap(({ claim: { token, requestedAt }, verdict }) => {
    if (verdict?.kind === 'accepted')
      return [{ key: token, value: observedMessage(source, token, verdict, { requestedAt }) }];
    if (verdict === null || requestedAt === null) return [];
    const reason = verdict.kind === 'refused' ? verdict.reason : 'repeated';
    return [{ key: token, value: unchangedMessage(source, token, { reason, readAt, requestedAt }) }];
  });
}
