import { Counter, Gauge, Histogram } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

export type ProjectionMetrics = ReturnType<typeof createProjectionMetrics>;

/** The figures of all projections of a process; make it once a registry. */
export function createProjectionMetrics(registry: Registry) {
  const registers = [registry];
  return {
    lag: new Gauge({
      name: 'tds_projection_lag',
      help: 'Messages in the log that a projection has not finished with',
      labelNames: ['projection', 'partition'] as const,
      registers,
    }),
    messages: new Counter({
      name: 'tds_projection_messages_total',
      help: 'Messages whose rows are written and whose checkpoint has moved',
      labelNames: ['projection'] as const,
      registers,
    }),
    rows: new Counter({
      name: 'tds_projection_rows_total',
      help: 'Rows that ClickHouse has acknowledged',
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
      help: 'One insert into one table, from sending to acknowledgement, pauses included',
      labelNames: ['projection'] as const,
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
      registers,
    }),
    deriveSeconds: new Histogram({
      name: 'tds_projection_derive_seconds',
      help: 'The derive step of one batch',
      labelNames: ['projection'] as const,
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
      registers,
    }),
    halted: new Gauge({
      name: 'tds_projection_halted',
      help: '1 while a message that cannot be read halts the partition',
      labelNames: ['projection', 'partition'] as const,
      registers,
    }),
    waiting: new Gauge({
      name: 'tds_projection_store_waiting',
      help: '1 while a store does not answer and the work waits for it',
      labelNames: ['store'] as const,
      registers,
    }),
  };
}
