import { metricsIn } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

export type ProjectionMetrics = ReturnType<typeof createProjectionMetrics>;

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10];
const BATCH_ROWS = [10, 100, 1000, 5000, 10_000, 25_000, 50_000, 100_000];

/** Metrics of all projections of a process; create them once per registry. */
export function createProjectionMetrics(registry: Registry) {
  const { counter, gauge, histogram } = metricsIn(registry);
  return {
    lag: gauge('tds_projection_lag', 'Messages that a projection has not processed yet', [
      'projection',
      'partition',
    ]),
    messages: counter(
      'tds_projection_messages_total',
      'Messages processed: rows written and checkpoint moved',
      ['projection'],
    ),
    rows: counter('tds_projection_rows_total', 'Rows acknowledged by ClickHouse', ['projection']),
    batchRows: histogram('tds_projection_batch_rows', 'Rows of the largest table in one batch', BATCH_ROWS),
    insertSeconds: histogram(
      'tds_projection_insert_seconds',
      'Duration of one insert into one table, retries included',
      SECONDS,
      ['projection'],
    ),
    deriveSeconds: histogram(
      'tds_projection_derive_seconds',
      'Duration of the derive step of one round of batches',
      SECONDS,
      ['projection'],
    ),
    halted: gauge('tds_projection_halted', '1 while a poison message halts the partition', [
      'projection',
      'partition',
    ]),
    waiting: gauge(
      'tds_projection_store_waiting',
      '1 while a store is unavailable and requests to it are retried',
      ['store'],
    ),
  };
}
