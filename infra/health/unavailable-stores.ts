import { createClickHouse } from '../clickhouse/client.ts';
import type { Config } from '../config.ts';
import { createKafka } from '../kafka/client.ts';
import { kafkaConnection } from '../kafka/connection.ts';
import { withTimeout } from '../lifecycle.ts';
import type { Logger } from '../log.ts';
import { createPool } from '../postgres/client.ts';
import { topics } from '../../schemas/topics.ts';

/** Timeout of a probe. */
const PROBE_TIMEOUT_MS = 3000;

/** Names of the configured stores that do not answer a probe. */
export async function unavailableStores(config: Config, log: Logger): Promise<string[]> {
  const databaseUrl = config.databaseUrl ?? config.apiDatabaseUrl;
  const clickhouseUrl = config.clickhouseUrl ?? config.apiClickhouseUrl;
  const asked: [name: string, answers: () => Promise<boolean>][] = [];
  if (databaseUrl !== null) asked.push(['PostgreSQL', () => postgresAnswers(databaseUrl)]);
  if (config.kafkaBrokers.length > 0) asked.push(['Kafka', () => kafkaAnswers(config, log)]);
  if (clickhouseUrl !== null) asked.push(['ClickHouse', () => clickhouseAnswers(clickhouseUrl)]);
  const answers = await Promise.all(
    asked.map(async ([name, ask]) =>
      (await withTimeout(
        ask().catch(() => false),
        PROBE_TIMEOUT_MS,
        false,
      ))
        ? []
        : [name],
    ),
  );
  return answers.flat();
}

async function postgresAnswers(url: string): Promise<boolean> {
  const pool = createPool(url, {
    applicationName: 'tds-wait',
    max: 1,
    connectTimeoutMs: PROBE_TIMEOUT_MS,
    queryTimeoutMs: PROBE_TIMEOUT_MS,
  });
  try {
    await pool.query('SELECT 1');
    return true;
  } finally {
    await pool.end();
  }
}

async function kafkaAnswers(config: Config, log: Logger): Promise<boolean> {
  const kafka = createKafka({
    ...kafkaConnection(config),
    clientId: 'tds-wait',
    topicPrefix: config.kafkaTopicPrefix,
    log,
  });
  try {
    // A single request: the client's own retries would outlive the probe.
    await kafka.topicId(topics.quarantine);
    return true;
  } finally {
    await kafka.close();
  }
}

async function clickhouseAnswers(url: string): Promise<boolean> {
  const clickhouse = createClickHouse(url, {
    application: 'tds-wait',
    timeoutMs: PROBE_TIMEOUT_MS,
    isReader: true,
  });
  try {
    return await clickhouse.ping();
  } finally {
    await clickhouse.close();
  }
}
