import { Counter, Gauge, Histogram } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

export type ProjectionMetrics = ReturnType<typeof createProjectionMetrics>;

/** Metrics of all projections of a process; create them once per registry. */
export function createProjectionMetrics(registry: Registry) {
  const registers = [registry];
  return {
    lag: new Gauge({
      name: 'tds_projection_lag',
      help: 'Messages that a projection has not processed yet',
      labelNames: ['projection', 'partition'] as const,
      registers,
    }),
    messages: new Counter({
      name: 'tds_projection_messages_total',
      help: 'Messages processed: rows written and checkpoint moved',
      labelNames: ['projection'] as const,
      registers,
    }),
    rows: new Counter({
      name: 'tds_projection_rows_total',
      help: 'Rows acknowledged by ClickHouse',
      labelNames: ['projection'] as const,
      registers,
    }),
    batchRows: new Histogram({
      name: 'tds_projection_batch_rows',
      help: 'Rows of the largest table in one batch',
      buckets: [10, 100, 1000, 5000, 10_000, 25_000, 50_000, 100_000],
      registers,
    }),
    insertSeconds: new Histogram({
      name: 'tds_projection_insert_seconds',
      help: 'Duration of one insert into one table, retries included',
      labelNames: ['projection'] as const,
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
      registers,
    }),
    deriveSeconds: new Histogram({
      name: 'tds_projection_derive_seconds',
      help: 'Duration of the derive step of one round of batches',
      labelNames: ['projection'] as const,
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
      registers,
    }),
    halted: new Gauge({
      name: 'tds_projection_halted',
      help: '1 while a poison message halts the partition',
      labelNames: ['projection', 'partition'] as const,
      registers,
    }),
    waiting: new Gauge({
      name: 'tds_projection_store_waiting',
      help: '1 while a store is unavailable and requests to it are retried',
      labelNames: ['store'] as const,
      registers,
    }),
  };
}
