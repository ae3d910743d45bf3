import { createClickHouse } from '../../clickhouse/client.ts';
import type { Config } from '../../config.ts';
import { createKafka } from '../../kafka/client.ts';
import type { Logger } from '../../log.ts';
import { createPool } from '../../postgres/client.ts';
import { topics } from '../../../schemas/topics.ts';
import { withTimeout } from '../../working-state.ts';

/** A store that does not answer a small question by then is taken for away. */
const WITHIN_MS = 3000;

/** Asks each store that the settings name, as this process would, and tells which do not answer. */
export async function storesAway(config: Config, log: Logger): Promise<string[]> {
  const databaseUrl = config.databaseUrl ?? config.apiDatabaseUrl;
  const clickhouseUrl = config.clickhouseUrl ?? config.apiClickhouseUrl;
  const asked: [name: string, answers: () => Promise<boolean>][] = [];
  if (databaseUrl !== null) asked.push(['PostgreSQL', () => postgresAnswers(databaseUrl)]);
  if (config.kafkaBrokers !== null) asked.push(['Kafka', () => kafkaAnswers(config, log)]);
  if (clickhouseUrl !== null) asked.push(['ClickHouse', () => clickhouseAnswers(clickhouseUrl)]);
  const answers = await Promise.all(
    asked.map(async ([name, ask]) =>
      (await withTimeout(
        ask().catch(() => false),
        WITHIN_MS,
        false,
      ))
        ? []
        : [name],
    ),
  );
  return answers.flat();
}

async function postgresAnswers(url: string): Promise<boolean> {
  const pool = createPool(url, { applicationName: 'tds-wait', max: 1, connectTimeoutMs: WITHIN_MS });
  try {
    await pool.query('SELECT 1');
    return true;
  } finally {
    await pool.end();
  }
}

async function kafkaAnswers(config: Config, log: Logger): Promise<boolean> {
  const kafka = createKafka({
    brokers: config.kafkaBrokers ?? [],
    clientId: 'tds-wait',
    topicPrefix: config.kafkaTopicPrefix,
    log,
  });
  try {
    // One exchange with a broker: the client's own tries go on long after nobody waits for them.
    await kafka.topicId(topics.quarantine);
    return true;
  } finally {
    await kafka.close();
  }
}

async function clickhouseAnswers(url: string): Promise<boolean> {
  const clickhouse = createClickHouse(url, { application: 'tds-wait', timeoutMs: WITHIN_MS });
  try {
    return await clickhouse.ping();
  } finally {
    await clickhouse.close();
  }
}
