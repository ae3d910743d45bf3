import { pino } from 'pino';

import { createKafka } from '../../infra/kafka/client.ts';
import type { Kafka } from '../../infra/kafka/client.ts';
import { createPool } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { migrate } from '../../infra/postgres/migrate.ts';
import { isolated } from './isolation.ts';

/** The log and the tables that an observer needs. */
export interface ObserverWorld {
  readonly pool: Pool;
  readonly kafka: Kafka;
  readonly log: pino.Logger;
  close(): Promise<void>;
}

export async function observerWorld(): Promise<ObserverWorld> {
  const log = pino({ level: 'silent' });
  const own = await isolated();
  const pool = createPool(own.env.DATABASE_URL, { applicationName: 'test' });
  await migrate(pool);
  const kafka = createKafka({
    brokers: own.env.KAFKA_BROKERS.split(','),
    clientId: 'test',
    topicPrefix: own.env.KAFKA_TOPIC_PREFIX,
    log,
  });
  await kafka.ensureTopics();
  return {
    pool,
    kafka,
    log,
    async close() {
      await kafka.close();
      await pool.end();
      await own.drop();
    },
  };
}
