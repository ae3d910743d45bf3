import { openBuild } from '../../projections/builds.ts';
import { projections } from '../../projections/index.ts';
import { createClickHouse, isClickHouseUnavailable } from '../clickhouse/client.ts';
import { required } from '../config.ts';
import type { Config } from '../config.ts';
import { createKafka } from '../kafka/client.ts';
import type { Logger } from '../log.ts';
import { grantApiRole } from '../postgres/api-role.ts';
import { createPool, isPostgresUnavailable } from '../postgres/client.ts';
import { migrate } from '../postgres/migrate.ts';
import { isRetryable } from '../../schemas/errors.ts';
import { waitFor } from './wait.ts';

/**
 * Makes the stores ready for the roles: topics with their retention, working tables, the tables of every projection's
 * served build, and the role that may only read. Everything in it may be done again.
 *
 * @returns the migrations applied now
 */
export async function prepareStores(config: Config, log: Logger, signal: AbortSignal): Promise<string[]> {
  const kafka = createKafka({
    brokers: required(config, 'kafkaBrokers'),
    clientId: 'tds-prepare',
    topicPrefix: config.kafkaTopicPrefix,
    log,
  });
  const pool = createPool(required(config, 'databaseUrl'), { applicationName: 'tds-prepare', max: 2 });
  const clickhouse = createClickHouse(required(config, 'clickhouseUrl'), { application: 'tds-prepare' });
  try {
    const [applied] = await Promise.all([
      waitFor('PostgreSQL', () => migrate(pool), { log, signal, isTransient: isPostgresUnavailable }),
      waitFor('Kafka', () => kafka.ensureTopics(), { log, signal, isTransient: isRetryable }),
      waitFor('ClickHouse', () => clickhouse.ping().then(assertAnswers), {
        log,
        signal,
        isTransient: isClickHouseUnavailable,
      }),
    ]);
    for (const projection of projections) await openBuild(pool, clickhouse, projection);
    if (config.apiDatabaseUrl !== null) await grantApiRole(pool, config.apiDatabaseUrl);
    return applied;
  } finally {
    await Promise.all([kafka.close(), pool.end(), clickhouse.close()]);
  }
}

function assertAnswers(answers: boolean): void {
  if (!answers) throw new Error('no answer to a ping');
}
