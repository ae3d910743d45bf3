import { metricsIn } from '../../../infra/metrics.ts';
import type { Registry } from '../../../infra/metrics.ts';

export function createPriceMetrics(registry: Registry) {
  const { counter, gauge } = metricsIn(registry);
  return {
    published: counter('tds_prices_published_total', 'Prices published to Kafka'),
    refused: counter(
      'tds_prices_refused_total',
      'Feed readings refused by the price guard, by reason (pipeline/observe/prices/guard.ts)',
      ['reason'],
    ),
    calls: counter(
      'tds_price_feed_calls_total',
      'Calls to the price feed, retries not counted, by outcome: ok or the error code',
      ['outcome'],
    ),
    tokens: gauge(
      'tds_prices_tokens',
      'Tokens by outcome of their last reading: ok or the reason of the refusal',
      ['state'],
    ),
  };
}
