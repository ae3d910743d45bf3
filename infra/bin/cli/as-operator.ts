import { openCommandChannel } from '../../commands/channel.ts';
import type { OperatorDeps } from '../operator/accounts.ts';
import { findOutcome } from '../../../projections/outcomes/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { required } from '../../config.ts';
import type { Config } from '../../config.ts';
import type { Publisher } from '../../kafka/client.ts';
import { Releasers } from '../../lifecycle.ts';
import type { Logger } from '../../log.ts';
import { openKafka, openPool } from '../connect.ts';

export interface OperatorSession extends OperatorDeps {
  readonly publisher: Publisher;
}

/** Publishes an operator's commands to the log, as the API publishes those of its users. */
export async function asOperator<T>(
  config: Config,
  log: Logger,
  work: (session: OperatorSession) => Promise<T>,
): Promise<T> {
  const releasers = new Releasers((name, error) =>
    log.debug({ err: error, name }, 'could not close resource'),
  );
  const opening = { config, log, releasers };
  try {
    const publisher = openKafka(opening, 'tds-operator').publisher();
    releasers.push('publisher', () => publisher.close());
    const pool = openPool(opening, 'tds-operator', 3, { queryTimeoutMs: null });
    const served = (): ReturnType<typeof servedBuilds> => servedBuilds(pool);
    const commands = openCommandChannel({
      publisher,
      databaseUrl: required(config, 'databaseUrl'),
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
