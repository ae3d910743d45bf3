import { openCommandChannel } from '../../commands/channel.ts';
import type { OperatorDeps } from '../operator/accounts.ts';
import { findOutcomes } from '../../../projections/outcomes/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { required } from '../../config.ts';
import type { Config } from '../../config.ts';
import type { Publisher } from '../../kafka/client.ts';
import type { Logger } from '../../log.ts';
import { openCommandPool, openKafka, withConnections } from '../connect.ts';

export interface OperatorSession extends OperatorDeps {
  readonly publisher: Publisher;
}

/** Publishes an operator's commands to the log, as the API publishes those of its users. */
export async function asOperator<T>(
  config: Config,
  log: Logger,
  work: (session: OperatorSession) => Promise<T>,
): Promise<T> {
  return await withConnections(config, log, async (connecting) => {
    const { releasers } = connecting;
    const publisher = openKafka(connecting, 'tds-operator').publisher();
    releasers.push('publisher', () => publisher.close());
    const pool = openCommandPool(connecting, 'tds-operator');
    const served = (): ReturnType<typeof servedBuilds> => servedBuilds(pool);
    const commands = openCommandChannel({
      publisher,
      databaseUrl: required(config, 'databaseUrl'),
      findOutcomes: async (submitted) => await findOutcomes(pool, await served(), submitted),
      timeoutMs: Math.max(30_000, config.commandTimeoutMs),
      log,
    });
    releasers.push('command channel', () => commands.close());
    return await work({ commands, pool, publisher, servedBuilds: served });
  });
}
