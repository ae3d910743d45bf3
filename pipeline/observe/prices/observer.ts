import type { Config } from '../../../infra/config.ts';
import type { Registry } from '../../../infra/metrics.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { readRequests, startObserver } from '../observer.ts';
import type { ObserverOptions, ObserverRun } from '../observer.ts';
import type { PriceFeed } from './feed.ts';
import type { GuardLimits } from './guard.ts';
import { listedTokens } from './messages.ts';
import { createPriceReader } from './reader.ts';
import { OBSERVER, scheduleListed } from './store.ts';

export type GuardConfig = Pick<Config, 'priceMaxAgeSeconds' | 'priceJumpFactor' | 'priceConfirmations'>;

export interface PriceObserverOptions extends ObserverOptions {
  readonly config: GuardConfig & Pick<Config, 'pricePollSeconds'>;
  readonly feed: PriceFeed;
  /** Tokens that are read periodically; null while no read model of tokens is served. */
  readonly commonTokens: () => Promise<readonly Felt[] | null>;
  readonly metrics: Registry;
}

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
  const { config } = options;
  return await startObserver(OBSERVER, options, async (observer) => {
    const { pool, now, retryWhileUnavailable } = observer;
    const reader = createPriceReader(observer, {
      ...options,
      limits: guardLimits(config),
      intervalMs: config.pricePollSeconds * 1000,
    });
    const loop = observer.loop(() => reader.round());
    await observer.consume([topics.requests, topics.tokens], async (batch) => {
      const isRequests = batch.topic === topics.requests.name;
      const requests = isRequests ? readRequests(observer, batch, 'price.requested') : [];
      for (const { token, caller, requested_at: requestedAt } of requests)
        reader.request({ token, caller, requestedAt });
      const listed = isRequests ? [] : listedTokens(observer, batch);
      // A call of the feed may take long: meanwhile other processes can read these tokens.
      if (requests.length > 0) await retryWhileUnavailable(() => reader.schedule());
      if (listed.length > 0) await retryWhileUnavailable(() => scheduleListed(pool, listed, now()));
      if (requests.length + listed.length > 0) loop.wake();
    });
  });
}
