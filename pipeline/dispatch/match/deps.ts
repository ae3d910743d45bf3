import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Clock } from '../../../infra/clock.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import type { DispatchMetrics } from '../metrics.ts';

/** The names of the read models that are served, all of one moment. */
export interface Served {
  table(placeholder: string): string;
  schema(projection: string): string;
}

export interface MatchDeps {
  readonly pool: Pool;
  readonly clickhouse: Pick<ClickHouse, 'rows'>;
  /** Postgres schema of the webhooks; null while no projector has built them. */
  readonly webhooks: () => Promise<string | null>;
  /** Reads from the read models that are served; null where one that is asked for is not built. */
  readonly whereServed: <T>(read: (served: Served) => Promise<T>) => Promise<T | null>;
  /** When the oldest webhook was made, in unix milliseconds; null: there is none. */
  readonly since: () => Promise<number | null>;
  readonly clock: Clock;
  readonly metrics: DispatchMetrics;
  readonly log: Logger;
  readonly kafka: Pick<Kafka, 'readRange'>;
  /** Fires when the dispatcher stops: a wait then rejects, and the batch is abandoned. */
  readonly signal: AbortSignal;
}

/** Compressed bytes of blocks that one fetch brings: some 16 MB of JSON. */
export const BLOCK_BYTES = 2_000_000;
