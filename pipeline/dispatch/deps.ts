import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Clock } from '../../infra/clock.ts';
import type { Kafka, Publisher } from '../../infra/kafka/client.ts';
import type { Logger } from '../../infra/log.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import type { RetryWhileUnavailable } from '../../infra/retry-while-unavailable.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import type { DispatchMetrics } from './metrics.ts';

/** What the parts of the dispatcher work with. */
export interface DispatchDeps {
  readonly pool: Pool;
  readonly clickhouse: RowReader;
  readonly kafka: Kafka;
  readonly publisher: Pick<Publisher, 'publish'>;
  /** Postgres schema of the webhooks; null while they are not built. */
  readonly webhooks: () => Promise<string | null>;
  /** Reads from the served builds; null where one of them is not built. */
  readonly readServed: <T>(read: (served: ServedBuilds) => Promise<T>) => Promise<T | null>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: DispatchMetrics;
  readonly retryWhileUnavailable: RetryWhileUnavailable;
  /** Fires when the dispatcher stops: a wait then rejects, and the batch is abandoned. */
  readonly signal: AbortSignal;
}

export interface MatchDeps extends Omit<DispatchDeps, 'kafka' | 'publisher' | 'retryWhileUnavailable'> {
  /** When the oldest webhook was created, in unix milliseconds; null: there is none. */
  readonly since: () => Promise<number | null>;
  readonly kafka: Pick<Kafka, 'offsets' | 'readRange'>;
}
