import type { Config } from '../../../infra/config.ts';
import type { Consumption, Kafka, LogBatch } from '../../../infra/kafka/client.ts';
import { pause } from '../../../infra/lifecycle.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Registry } from '../../../infra/metrics.ts';
import { isPostgresUnavailable } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { AppError, isRetryable } from '../../../schemas/errors.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { createAlarms } from '../alarms.ts';
import { retryAfterMs } from '../http.ts';
import { createLogReaderRetry, placeInLog } from '../../log-reading.ts';
import { readPosition } from '../positions.ts';
import { retryPauseMs } from '../retry.ts';
import type { ObserverRun } from '../tokens.ts';
import type { FeedReading, PriceFeed } from './feed.ts';
import { observedMessage, unchangedMessage } from './message.ts';
import { createPriceMetrics } from './metrics.ts';
import { readPriceNews } from './news.ts';
import { OBSERVER, createPriceStore, priceStates } from './store.ts';
import type { Answered, Claim, Settled } from './store.ts';
import { reasonOf, verdictsOf } from './verdicts.ts';

export type PriceConfig = Pick<
  Config,
  'pricePollSeconds' | 'priceMinConfidence' | 'priceMaxAgeSeconds' | 'priceJumpFactor' | 'priceConfirmSeconds'
>;

export interface PriceObserverOptions {
  readonly config: PriceConfig;
  readonly feed: PriceFeed;
  /** Tokens that are read all the time; null while that cannot be told. */
  readonly commonTokens: () => Promise<readonly Felt[] | null>;
  readonly pool: Pool;
  readonly kafka: Kafka;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly signal?: AbortSignal;
  /** Unix milliseconds. */
  readonly now?: () => number;
  /** Longest time between looks for due tokens. */
  readonly pollMs?: number;
  /** Those who ask for a token within so long of its last reading are answered by that one. */
  readonly windowMs?: number;
}

const WINDOW_MS = 10_000;
/** The feed is called no more often than this, however many ask. */
const CALL_EVERY_MS = 250;
const COMMON_EVERY_MS = 10_000;
/** After a message could not be written to the log. */
const LOG_PAUSE_MS = 5000;
const FEED_ALARM = 'prices.feed';
const REFUSED_ALARM = 'prices.refused:';

/** The guard's limits as they are configured. */
export function guardLimits(config: PriceConfig) {
  return {
    minConfidence: config.priceMinConfidence,
    maxAgeMs: config.priceMaxAgeSeconds * 1000,
    jumpFactor: config.priceJumpFactor,
    confirmMs: config.priceConfirmSeconds * 1000,
  };
}

/**
 * Reads prices and publishes those that the guard believes: of common tokens all the time, of newly listed ones once, of
 * any other when the log asks for it. Every process that runs it takes its share of the tokens that are due. A price that
 * was published and not yet written down when the process died is published once more: to its readers, who know a price
 * by its token and time, that is the same one.
 */
export async function runPriceObserver(options: PriceObserverOptions): Promise<ObserverRun> {
  const { config, feed, pool, kafka, log, now = Date.now, pollMs = 1000, windowMs = WINDOW_MS } = options;
  const limits = guardLimits(config);
  const metrics = createPriceMetrics(options.metrics);
  const store = createPriceStore(pool);
  const alarms = createAlarms(pool);
  const publisher = kafka.publisher();
  const read = [topics.requests, topics.tokens] as const;
  const topicIds = new Map<string, string>();
  for (const topic of read) topicIds.set(topic.name, await kafka.topicId(topic));
  const stopping = new AbortController();
  const { signal } = stopping;
  let waiting = new AbortController();
  let consumption: Consumption | null = null;
  let commonAt = -Infinity;
  let calledAt = -Infinity;
  let failures = 0;
  /** The feed is left alone until then. */
  let quietUntil = 0;
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});

  const retryWhileUnavailable = createLogReaderRetry(OBSERVER, log, signal);

  async function startAt(name: string, partition: number): Promise<number | 'beginning'> {
    const topic = read.find((one) => one.name === name);
    if (topic === undefined) return 'beginning';
    const place = { topic: name, topicId: topicIds.get(name) ?? '', partition };
    // Requests are kept for a day: a position that is older is no loss.
    return await placeInLog(
      kafka,
      topic,
      partition,
      await retryWhileUnavailable(() => readPosition(pool, OBSERVER, place)),
    );
  }

  async function onBatch(batch: LogBatch): Promise<void> {
    const { topic, partition, messages } = batch;
    const nextOffset = (messages.at(-1)?.offset ?? -1) + 1;
    const topicId = topicIds.get(topic) ?? '';
    const news = readPriceNews(batch, now(), log);
    const answered = await retryWhileUnavailable(() =>
      store.want(news, { topic, topicId, partition, nextOffset }, windowMs, now()),
    );
    if (news.asked.size + news.fresh.length > 0) waiting.abort();
    await answer(answered);
    consumption?.commit(topic, partition, nextOffset).catch(() => {}); // for the display of lag alone
  }

  async function lookForCommon(): Promise<void> {
    if (now() - commonAt < Math.min(COMMON_EVERY_MS, config.pricePollSeconds * 1000)) return;
    const tokens = await options.commonTokens();
    if (tokens === null) return;
    await store.watchCommon(tokens, now());
    await store.clearUncommon(REFUSED_ALARM);
    commonAt = now();
    metrics.tokens.reset();
    for (const { refusal, tokens: count } of await priceStates(pool))
      metrics.tokens.set({ state: refusal ?? 'ok' }, count);
  }

  async function readDue(): Promise<boolean> {
    if (now() < quietUntil) return false;
    const claims = await store.claim(feed.tokensPerCall, now());
    if (claims.length === 0) return false;
    await pause(Math.max(0, calledAt + CALL_EVERY_MS - performance.now()), signal);
    calledAt = performance.now();
    let readings: FeedReading[];
    try {
      readings = await feed.current(
        claims.map(({ token }) => token),
        signal,
      );
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      await unheard(claims, error);
      return false;
    }
    failures = 0;
    metrics.calls.inc({ outcome: 'ok' });
    const settled = verdictsOf(claims, readings, limits, config.pricePollSeconds * 1000, now());
    if (!(await publish(settled))) return false;
    await answer(await retryWhileUnavailable(() => store.settle(settled, now())));
    await retryWhileUnavailable(() => tell(settled));
    return true;
  }

  /** The feed did not answer, or not in its language: nothing is known of these tokens that was not before. */
  async function unheard(claims: readonly Claim[], error: AppError): Promise<void> {
    const isStopped = signal.aborted;
    failures += isStopped ? 0 : 1;
    const pauseMs = isStopped ? 0 : Math.max(retryAfterMs(error) ?? 0, retryPauseMs(failures, Math.random()));
    quietUntil = now() + pauseMs;
    await retryWhileUnavailable(() =>
      store.settle(
        claims.map((claim) => ({ claim, verdict: null, dueAt: quietUntil })),
        now(),
      ),
    );
    if (isStopped) return;
    metrics.calls.inc({ outcome: error.code });
    log.warn({ err: error, failures, pauseMs }, 'the price feed was not heard; trying again later');
    await retryWhileUnavailable(() => alarms.raise(FEED_ALARM, `not heard: ${error.message}`));
  }

  async function publish(settled: readonly Settled[]): Promise<boolean> {
    const readAt = now();
    const messages = settled.flatMap(({ claim: { token, askedAt }, verdict }) => {
      if (verdict?.kind === 'publish')
        return [{ key: token, value: observedMessage(feed.source, token, verdict, askedAt) }];
      if (verdict === null || askedAt === null) return [];
      const asked = { reason: reasonOf(verdict) ?? 'repeated', readAt, requestedAt: askedAt };
      return [{ key: token, value: unchangedMessage(feed.source, token, asked) }];
    });
    try {
      if (messages.length > 0) await publisher.publish(topics.prices, messages);
      metrics.published.inc(settled.filter(({ verdict }) => verdict?.kind === 'publish').length);
      return true;
    } catch (error) {
      if (!isRetryable(error)) throw error;
      log.warn({ err: error }, 'prices not written to the log; read again later');
      const dueAt = now() + LOG_PAUSE_MS;
      await retryWhileUnavailable(() =>
        store.settle(
          settled.map(({ claim }) => ({ claim, verdict: null, dueAt })),
          now(),
        ),
      );
      return false;
    }
  }

  /** Tells those who asked that what is known is as new as it can be. An answer that is lost is asked for again. */
  async function answer(answered: readonly Answered[]): Promise<void> {
    if (answered.length === 0) return;
    const messages = answered.map(({ token, ...asked }) => ({
      key: token,
      value: unchangedMessage(feed.source, token, { reason: 'repeated', ...asked }),
    }));
    await publisher.publish(topics.prices, messages).catch((error: unknown) => {
      if (!isRetryable(error)) throw error;
      log.warn({ err: error }, 'requests are not answered: the log is away');
    });
  }

  /** Counts what was refused; of a common token it is an alarm until its price is in order again. */
  async function tell(settled: readonly Settled[]): Promise<void> {
    const inOrder: string[] = [FEED_ALARM];
    for (const { claim, verdict } of settled) {
      const { token, common } = claim;
      if (verdict === null) continue;
      const reason = reasonOf(verdict);
      if (reason === null || !('detail' in verdict)) {
        inOrder.push(REFUSED_ALARM + token);
        continue;
      }
      metrics.refused.inc({ reason });
      log.info({ contract: token, reason, detail: verdict.detail }, 'a price was not published');
      // A feed need not know every token.
      if (common && reason !== 'untracked')
        await alarms.raise(REFUSED_ALARM + token, `${reason}: ${verdict.detail}`);
    }
    await alarms.clear(inOrder);
  }

  const looping = (async () => {
    while (!signal.aborted) {
      waiting = new AbortController();
      try {
        await lookForCommon();
        if (await readDue()) continue;
      } catch (error) {
        if (!isPostgresUnavailable(error)) throw error;
        log.warn({ err: error, observer: OBSERVER }, 'Postgres does not answer; trying again');
      }
      await pause(pollMs, waiting.signal);
    }
  })();
  looping.catch((error: unknown) => {
    if (!signal.aborted) ending.reject(error);
  });

  consumption = await kafka.consume({
    groupId: 'observe-prices',
    topics: read,
    startAt,
    onBatch,
    onCrash: ending.reject,
  });

  let stopped: Promise<void> | null = null;
  const stop = (): Promise<void> =>
    (stopped ??= (async () => {
      stopping.abort();
      waiting.abort();
      await consumption?.stop();
      await looping.catch(() => {});
      await publisher.close();
      ending.resolve();
    })());
  options.signal?.addEventListener('abort', () => void stop().catch(ending.reject), { once: true });
  return { done: ending.promise, stop };
}
