import { Counter, Gauge, Histogram } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

export type DispatchMetrics = ReturnType<typeof createDispatchMetrics>;

export function createDispatchMetrics(registry: Registry) {
  const registers = [registry];
  return {
    attempts: new Counter({
      name: 'tds_webhook_attempts_total',
      help: 'Attempts that have ended, by what became of the delivery: success, failed or dead',
      labelNames: ['outcome'] as const,
      registers,
    }),
    duration: new Histogram({
      name: 'tds_webhook_attempt_seconds',
      help: 'How long attempts took, from the look-up of the host to the end of the answer',
      buckets: [0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10],
      registers,
    }),
    matched: new Counter({
      name: 'tds_webhook_deliveries_total',
      help: 'Deliveries that were made, by event; one of the same thing twice counts twice',
      labelNames: ['event'] as const,
      registers,
    }),
    unreadable: new Counter({
      name: 'tds_webhook_messages_unreadable_total',
      help: 'Messages of the log that a matcher passed over, because they could not be read',
      labelNames: ['topic'] as const,
      registers,
    }),
    position: new Gauge({
      name: 'tds_webhook_messages_behind',
      help: 'Messages of the log that a matcher has not looked at',
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
      help: 'Webhooks with a delivery that is due',
      registers,
    }),
  };
}
