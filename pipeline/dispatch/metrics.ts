import { metricsIn } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

export type DispatchMetrics = ReturnType<typeof createDispatchMetrics>;

export function createDispatchMetrics(registry: Registry) {
  const { counter, gauge, histogram } = metricsIn(registry);
  return {
    attempts: counter(
      'tds_webhook_attempts_total',
      'Attempts that have ended, by the status of the delivery after it: success, failed or dead',
      ['outcome'],
    ),
    duration: histogram(
      'tds_webhook_attempt_seconds',
      'Duration of an attempt, from the DNS lookup to the end of the response',
      [0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10],
    ),
    matched: counter(
      'tds_webhook_deliveries_total',
      'Deliveries created, by event; a delivery that is stored twice counts twice',
      ['event'],
    ),
    unreadable: counter(
      'tds_webhook_messages_unreadable_total',
      'Messages that a matcher skipped because they could not be parsed',
      ['topic'],
    ),
    lag: gauge(
      'tds_webhook_messages_behind',
      'Messages of a partition that a matcher has not processed; 0 while no webhook can match',
      ['matcher', 'partition'],
    ),
    paused: gauge(
      'tds_webhook_matcher_paused',
      '1 while a matcher has paused a partition, because a projection that it reads is halted or far behind',
      ['matcher', 'partition'],
    ),
    deletions: gauge(
      'tds_webhooks_being_deleted',
      'Deleted webhooks whose deliveries are not all deleted yet',
    ),
    deleted: counter(
      'tds_webhook_deliveries_deleted_total',
      'Deliveries deleted, by reason: webhook_deleted, expired (older than WEBHOOK_HISTORY_DAYS), or quota (above WEBHOOK_MAX_DELIVERIES)',
      ['reason'],
    ),
    due: gauge('tds_webhook_endpoints_due', 'Webhooks with a due delivery'),
  };
}
