import { Counter, Gauge } from '../../../infra/metrics.ts';
import type { Registry } from '../../../infra/metrics.ts';

export function createPriceMetrics(registry: Registry) {
  const registers = [registry];
  return {
    published: new Counter({
      name: 'tds_prices_published_total',
      help: 'Prices written to the log',
      registers,
    }),
    refused: new Counter({
      name: 'tds_prices_refused_total',
      help: 'Readings that were not published, by reason (pipeline/observe/prices/guard.ts)',
      labelNames: ['reason'] as const,
      registers,
    }),
    calls: new Counter({
      name: 'tds_price_feed_calls_total',
      help: 'Calls to the price feed, those tried again counted once, by outcome: ok or the code of the error',
      labelNames: ['outcome'] as const,
      registers,
    }),
    tokens: new Gauge({
      name: 'tds_prices_tokens',
      help: 'Tokens by what became of their last reading: ok, or why it was not published',
      labelNames: ['state'] as const,
      registers,
    }),
  };
}
