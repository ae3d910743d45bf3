import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Clock } from '../../../infra/clock.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import type { DispatchMetrics } from '../metrics.ts';

/** Names of the tables and schemas of the served builds, all read at one moment. */
export interface Served {
  table(placeholder: string): string;
  schema(projection: string): string;
}

export interface MatchDeps {
  readonly pool: Pool;
  readonly clickhouse: Pick<ClickHouse, 'rows'>;
  /** Postgres schema of the webhooks; null while they are not built. */
  readonly webhooks: () => Promise<string | null>;
  /** Reads from the served builds; null where one of them is not built. */
  readonly whereServed: <T>(read: (served: Served) => Promise<T>) => Promise<T | null>;
  /** When the oldest webhook was created, in unix milliseconds; null: there is none. */
  readonly since: () => Promise<number | null>;
  readonly clock: Clock;
  readonly metrics: DispatchMetrics;
  readonly log: Logger;
  readonly kafka: Pick<Kafka, 'readRange'>;
  /** Fires when the dispatcher stops: a wait then rejects, and the batch is abandoned. */
  readonly signal: AbortSignal;
}

/** Compressed bytes of blocks in one fetch: some 16 MB of JSON. */
export const BLOCK_FETCH_BYTES = 2_000_000;
