import { fileURLToPath } from 'node:url';

import { importFile } from './operator/catalogue/import.ts';
import { readJson } from './operator/catalogue/read-file.ts';
import { openCommandChannel } from '../commands/channel.ts';
import { addApiKey, ensureUser } from './operator/accounts.ts';
import type { OperatorDeps } from './operator/accounts.ts';
import { isEmptyOf } from '../../projections/catalogue/queries.ts';
import { findOutcome } from '../../projections/outcomes/queries.ts';
import { servedBuilds } from '../../projections/served.ts';
import { required } from '../config.ts';
import type { Config } from '../config.ts';
import { createKafka } from '../kafka/client.ts';
import type { Publisher } from '../kafka/client.ts';
import { Releasers } from '../lifecycle.ts';
import type { Logger } from '../log.ts';
import { createPool } from '../postgres/client.ts';

/** What an operator's command is given. */
interface OperatorSession extends OperatorDeps {
  readonly publisher: Publisher;
}

/** Runs operators' commands through the log, as the API's are, and closes what it needed. */
export async function asOperator<T>(
  config: Config,
  log: Logger,
  work: (session: OperatorSession) => Promise<T>,
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
      databaseUrl,
      findOutcome: async (id, type) => await findOutcome(pool, await served(), id, type),
      timeoutMs: Math.max(30_000, config.commandTimeoutMs),
      log,
    });
    releasers.push('command channel', () => commands.close());
    return await work({ commands, pool, publisher, servedBuilds: served });
  } finally {
    await releasers.releaseAll();
  }
}

/** What the directory begins with. */
const STARTER = fileURLToPath(new URL('../catalogue/starter.json', import.meta.url));

/**
 * Fills a directory in which nothing was ever listed. Where an operator has listed anything nothing is done, so what he
 * changes, or puts out of sight, stays as it is.
 */
async function fillDirectory(session: OperatorSession, log: Logger): Promise<void> {
  const schema = (await session.servedBuilds()).schema('catalogue');
  if (!(await isEmptyOf(session.pool, schema, ['categories', 'dapps', 'class_hashes']))) return;
  const outcome = await importFile({ ...session, now: Date.now }, { path: STARTER, read: readJson });
  if (!outcome.isGood) log.error({ faults: outcome.faults }, 'the directory to begin with is not good');
}

/**
 * Makes the first user exist, and an API key of his where none is kept, and fills the directory: what a person needs for a
 * first call.
 */
export async function introduce(
  config: Config,
  log: Logger,
  { username, password, apiKey }: { username: string; password: string; apiKey: string | null },
): Promise<{ apiKey: string }> {
  return await asOperator(config, log, async (deps) => {
    await fillDirectory(deps, log);
    await ensureUser(deps, { username, password, isAdmin: true });
    if (apiKey !== null) return { apiKey };
    const { key } = await addApiKey(deps, { username, name: 'first key' });
    return { apiKey: key };
  });
}
