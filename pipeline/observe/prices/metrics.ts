import { Counter, Gauge } from '../../../infra/metrics.ts';
import type { Registry } from '../../../infra/metrics.ts';

export function createPriceMetrics(registry: Registry) {
  const registers = [registry];
  return {
    published: new Counter({
      name: 'tds_prices_published_total',
      help: 'Prices published to Kafka',
      registers,
    }),
    refused: new Counter({
      name: 'tds_prices_refused_total',
      help: 'Feed readings refused by the price guard, by reason (pipeline/observe/prices/guard.ts)',
      labelNames: ['reason'] as const,
      registers,
    }),
    calls: new Counter({
      name: 'tds_price_feed_calls_total',
      help: 'Calls to the price feed, retries not counted, by outcome: ok or the error code',
      labelNames: ['outcome'] as const,
      registers,
    }),
    tokens: new Gauge({
      name: 'tds_prices_tokens',
      help: 'Tokens by outcome of their last reading: ok or the reason of the refusal',
      labelNames: ['state'] as const,
      registers,
    }),
  };
}
