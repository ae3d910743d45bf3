import { Counter, Gauge, Histogram } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

export type DispatchMetrics = ReturnType<typeof createDispatchMetrics>;

export function createDispatchMetrics(registry: Registry) {
  const registers = [registry];
  return {
    attempts: new Counter({
      name: 'tds_webhook_attempts_total',
      help: 'Attempts that have ended, by the status of the delivery after it: success, failed or dead',
      labelNames: ['outcome'] as const,
      registers,
    }),
    duration: new Histogram({
      name: 'tds_webhook_attempt_seconds',
      help: 'Duration of an attempt, from the DNS lookup to the end of the response',
      buckets: [0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10],
      registers,
    }),
    matched: new Counter({
      name: 'tds_webhook_deliveries_total',
      help: 'Deliveries created, by event; a delivery that is stored twice counts twice',
      labelNames: ['event'] as const,
      registers,
    }),
    unreadable: new Counter({
      name: 'tds_webhook_messages_unreadable_total',
      help: 'Messages that a matcher skipped because they could not be parsed',
      labelNames: ['topic'] as const,
      registers,
    }),
    lag: new Gauge({
      name: 'tds_webhook_messages_behind',
      help: 'Messages of a partition that a matcher has not processed',
      labelNames: ['matcher', 'partition'] as const,
      registers,
    }),
    paused: new Gauge({
      name: 'tds_webhook_matcher_paused',
      help: '1 while a matcher has paused a partition, because a projection that it reads is halted or far behind',
      labelNames: ['matcher', 'partition'] as const,
      registers,
    }),
    due: new Gauge({
      name: 'tds_webhook_endpoints_due',
      help: 'Webhooks with a due delivery',
      registers,
    }),
  };
}
