import { needsRebuild, openBuild } from '../../../projections/engine/builds.ts';
import type { Projection } from '../../../projections/define.ts';
import { projections } from '../../../projections/index.ts';
import { createClickHouse } from '../../clickhouse/client.ts';
import { required } from '../../config.ts';
import type { Config } from '../../config.ts';
import { createKafka } from '../../kafka/client.ts';
import type { Logger } from '../../log.ts';
import { grantApiRole } from '../../postgres/api-role.ts';
import { createPool, isPostgresUnavailable } from '../../postgres/client.ts';
import { migrate } from '../../postgres/migrate.ts';
import { AppError, isRetryable } from '../../../schemas/errors.ts';
import { retryUntilAvailable } from '../process/wait-for-stores.ts';

/** What was done, and what is left to do. */
export interface Prepared {
  /** Migrations applied now. */
  readonly applied: readonly string[];
  /** Projections that are not served as this program writes them, in another version or not at all: to be rebuilt. */
  readonly outdated: readonly Projection[];
}

/**
 * Makes the stores ready for the roles: topics with their retention, working tables, the tables of every projection's
 * served build, and the role that may only read. Everything in it may be done again.
 */
export async function prepareStores(config: Config, log: Logger, signal: AbortSignal): Promise<Prepared> {
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
      retryUntilAvailable('PostgreSQL', () => migrate(pool), {
        log,
        signal,
        isTransient: isPostgresUnavailable,
      }),
      retryUntilAvailable('Kafka', () => kafka.ensureTopics(), { log, signal, isTransient: isRetryable }),
      retryUntilAvailable('ClickHouse', () => clickhouse.ping().then(assertAnswers), {
        log,
        signal,
        isTransient: isRetryable,
      }),
    ]);
    const outdated: Projection[] = [];
    for (const projection of projections) {
      if (await needsRebuild(pool, projection)) outdated.push(projection);
      else await openBuild(pool, clickhouse, projection);
    }
    if (config.apiDatabaseUrl !== null) await grantApiRole(pool, config.apiDatabaseUrl);
    return { applied, outdated };
  } finally {
    await Promise.all([kafka.close(), pool.end(), clickhouse.close()]);
  }
}

function assertAnswers(answers: boolean): void {
  if (!answers) throw new AppError('STORE_UNAVAILABLE', 'ClickHouse does not answer', { retryable: true });
}
