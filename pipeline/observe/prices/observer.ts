import type { Config } from '../../../infra/config.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Registry } from '../../../infra/metrics.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { createLogReaderRetry } from '../../log-reading.ts';
import { consumeTopics } from '../consume.ts';
import { startObserver, startPollLoop } from '../loops.ts';
import type { ObserverRun } from '../loops.ts';
import type { PriceFeed } from './feed.ts';
import type { GuardLimits } from './guard.ts';
import { readTriggers } from './messages.ts';
import { createPriceReader } from './reader.ts';
import { OBSERVER, createPriceStore } from './store.ts';

export type GuardConfig = Pick<Config, 'priceMaxAgeSeconds' | 'priceJumpFactor' | 'priceConfirmations'>;

export interface PriceObserverOptions {
  readonly config: GuardConfig & Pick<Config, 'pricePollSeconds'>;
  readonly feed: PriceFeed;
  /** Tokens that are read periodically; null while no read model of tokens is served. */
  readonly commonTokens: () => Promise<readonly Felt[] | null>;
  readonly pool: Pool;
  readonly kafka: Kafka;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly signal?: AbortSignal;
  /** Unix milliseconds. */
  readonly now?: () => number;
  /** Upper bound of the delay until a due token is noticed. */
  readonly pollMs?: number;
  /** A request within this time of the last reading of its token is answered by that reading. */
  readonly windowMs?: number;
}

const WINDOW_MS = 10_000;

export function guardLimits(config: GuardConfig): GuardLimits {
  return {
    maxAgeMs: config.priceMaxAgeSeconds * 1000,
    jumpFactor: config.priceJumpFactor,
    confirmations: config.priceConfirmations,
  };
}

/**
 * Publishes prices of common tokens periodically, of newly listed tokens once, and of any token on request. Processes share
 * the due tokens. After a crash between publishing and settling a price is published twice, which is idempotent: readers
 * identify a price by token and time.
 */
export async function runPriceObserver(options: PriceObserverOptions): Promise<ObserverRun> {
  const { config, feed, pool, kafka, log, now = Date.now, pollMs = 1000, windowMs = WINDOW_MS } = options;
  return await startObserver(options.signal, async (context) => {
    const { signal, releasers, fail } = context;
    const store = createPriceStore(pool);
    const publisher = kafka.publisher();
    releasers.push('publisher', () => publisher.close());
    const retryWhileUnavailable = createLogReaderRetry(OBSERVER, log, signal);
    const reader = createPriceReader({
      feed,
      limits: guardLimits(config),
      intervalMs: config.pricePollSeconds * 1000,
      commonTokens: options.commonTokens,
      store,
      pool,
      publisher,
      retryWhileUnavailable,
      log,
      metrics: options.metrics,
      signal,
      now,
    });
    const loop = startPollLoop({
      component: 'price observer',
      round: () => reader.round(),
      pollMs,
      log,
      signal,
      onFatal: fail,
    });
    releasers.push('reading', () => loop.finished);

    await consumeTopics(
      {
        kafka,
        pool,
        log,
        observer: OBSERVER,
        topics: [topics.requests, topics.tokens],
        async handle(batch) {
          const triggers = readTriggers(batch, now(), log);
          const answered = await retryWhileUnavailable(() => store.schedule(triggers, windowMs, now()));
          if (triggers.requested.size + triggers.listed.length > 0) loop.wake();
          await reader.answer(answered);
        },
        retryWhileUnavailable,
      },
      context,
    );
  });
}
