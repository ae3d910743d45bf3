import { createClickHouse } from '../clickhouse/client.ts';
import type { ClickHouse } from '../clickhouse/client.ts';
import { required } from '../config.ts';
import type { Config } from '../config.ts';
import { createKafka } from '../kafka/client.ts';
import type { Kafka } from '../kafka/client.ts';
import { Releasers } from '../lifecycle.ts';
import type { Logger } from '../log.ts';
import { createPool } from '../postgres/client.ts';
import type { Pool } from '../postgres/client.ts';

/** What a command works with; `releasers` takes whatever else it opens. */
export interface Stores {
  readonly pool: Pool;
  readonly kafka: Kafka;
  readonly clickhouse: ClickHouse;
  readonly releasers: Releasers;
}

/** Opens the stores for one command, and closes everything when it is done. */
export async function withStores<T>(
  config: Config,
  name: string,
  log: Logger,
  work: (stores: Stores) => Promise<T>,
): Promise<T> {
  const releasers = new Releasers((what, error) => log.debug({ err: error, what }, 'did not close'));
  const pool = createPool(required(config, 'databaseUrl'), { applicationName: name, max: 4 });
  releasers.push('PostgreSQL', () => pool.end());
  const kafka = createKafka({
    brokers: required(config, 'kafkaBrokers'),
    clientId: name,
    topicPrefix: config.kafkaTopicPrefix,
    log,
  });
  releasers.push('Kafka', () => kafka.close());
  const clickhouse = createClickHouse(required(config, 'clickhouseUrl'), {
    application: name,
    timeoutMs: 600_000,
  });
  releasers.push('ClickHouse', () => clickhouse.close());
  try {
    return await work({ pool, kafka, clickhouse, releasers });
  } finally {
    await releasers.releaseAll();
  }
}
