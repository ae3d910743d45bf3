import type { Publisher } from '../../infra/kafka/client.ts';
import type { Logger } from '../../infra/log.ts';
import { listen } from '../../infra/postgres/listen.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { deciders, outcomeById } from '../../projections/outcomes/queries.ts';
import { AppError } from '../../schemas/errors.ts';
import { DECIDED_CHANNEL } from '../../schemas/messages/commands.ts';
import { createCommandBus } from './bus.ts';
import type { CommandBus } from './bus.ts';
import type { ServedBuilds } from '../http/route.ts';

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
    async outcome(id, type) {
      const schema = schemaOf(await servedBuilds(), deciders[type]);
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

/** Null while no projector has opened the projection: a command appended by then is decided when one has. */
function schemaOf(served: ServedBuilds, projection: string): string | null {
  try {
    return served.schema(projection);
  } catch (error) {
    if (error instanceof AppError && error.code === 'NOT_FOUND') return null;
    throw error;
  }
}
