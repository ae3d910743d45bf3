import { openCommandChannel } from '../../api/command-channel.ts';
import { addApiKey, ensureUser } from '../../api/operator.ts';
import type { OperatorDeps } from '../../api/operator.ts';
import { servedBuilds } from '../../projections/served.ts';
import { required } from '../config.ts';
import type { Config } from '../config.ts';
import { createKafka } from '../kafka/client.ts';
import { Releasers } from '../lifecycle.ts';
import type { Logger } from '../log.ts';
import { createPool } from '../postgres/client.ts';

/** Runs operators' commands through the log, as the API's are, and closes what it needed. */
export async function asOperator<T>(
  config: Config,
  log: Logger,
  work: (deps: OperatorDeps) => Promise<T>,
): Promise<T> {
  const releasers = new Releasers((name, error) =>
    log.debug({ err: error, name }, 'a resource did not close'),
  );
  const databaseUrl = required(config, 'databaseUrl');
  const kafka = createKafka({
    brokers: required(config, 'kafkaBrokers'),
    clientId: 'tds-operator',
    topicPrefix: config.kafkaTopicPrefix,
    log,
  });
  releasers.push('Kafka', () => kafka.close());
  const publisher = kafka.publisher();
  releasers.push('publisher', () => publisher.close());
  const pool = createPool(databaseUrl, { applicationName: 'tds-operator', max: 3 });
  releasers.push('PostgreSQL', () => pool.end());
  try {
    const served = (): ReturnType<typeof servedBuilds> => servedBuilds(pool);
    const commands = openCommandChannel({
      publisher,
      pool,
      databaseUrl,
      servedBuilds: served,
      timeoutMs: Math.max(30_000, config.commandTimeoutMs),
      log,
    });
    releasers.push('command channel', () => commands.close());
    return await work({ commands, pool, servedBuilds: served });
  } finally {
    await releasers.releaseAll();
  }
}

/** Makes the first user exist, and an API key of his where none is kept: what a person needs for a first call. */
export async function introduce(
  config: Config,
  log: Logger,
  { username, password, apiKey }: { username: string; password: string; apiKey: string | null },
): Promise<{ apiKey: string }> {
  return await asOperator(config, log, async (deps) => {
    await ensureUser(deps, { username, password, isAdmin: true });
    if (apiKey !== null) return { apiKey };
    const { key } = await addApiKey(deps, { username, name: 'first key' });
    return { apiKey: key };
  });
}
