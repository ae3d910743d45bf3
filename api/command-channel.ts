import type { Publisher } from '../infra/kafka/client.ts';
import type { Logger } from '../infra/log.ts';
import { listen } from '../infra/postgres/listen.ts';
import type { Sql } from '../infra/postgres/client.ts';
import { DECIDED_CHANNEL, outcomeById } from '../projections/accounts/queries.ts';
import { AppError } from '../schemas/errors.ts';
import { createCommandBus } from './commands.ts';
import type { CommandBus } from './commands.ts';
import type { ServedBuilds } from './route.ts';

export interface CommandChannel extends CommandBus {
  close(): Promise<void>;
}

/** A command bus that is woken by Postgres when a command has been decided. For the API and for the command line. */
export function openCommandChannel(options: {
  readonly publisher: Pick<Publisher, 'publish'>;
  readonly pool: Sql;
  /** Where `pool` connects to; one more connection listens. */
  readonly databaseUrl: string;
  readonly servedBuilds: () => Promise<ServedBuilds>;
  readonly timeoutMs: number;
  readonly log: Logger;
  readonly now?: () => number;
}): CommandChannel {
  const { publisher, pool, databaseUrl, servedBuilds, timeoutMs, log, now = Date.now } = options;
  const bus = createCommandBus({
    publisher,
    async outcome(id) {
      const schema = accountsSchema(await servedBuilds());
      return schema === null ? null : await outcomeById(pool, schema, id);
    },
    timeoutMs,
    now,
  });
  const listening = listen({
    url: databaseUrl,
    channel: DECIDED_CHANNEL,
    applicationName: 'tds-command-outcomes',
    log,
    onNotification: (id) => bus.wake(id),
  });
  return { ...bus, close: () => listening.close() };
}

/** Null while no projector has opened the accounts: a command appended by then is decided when one has. */
function accountsSchema(served: ServedBuilds): string | null {
  try {
    return served.schema('accounts');
  } catch (error) {
    if (error instanceof AppError && error.code === 'NOT_FOUND') return null;
    throw error;
  }
}
