import { DECIDED_CHANNEL } from '../../schemas/messages/commands.ts';
import type { Publisher } from '../kafka/client.ts';
import type { Logger } from '../log.ts';
import { listen } from '../postgres/listen.ts';
import { createCommandBus } from './bus.ts';
import type { CommandBus } from './bus.ts';
import type { FindOutcomes } from './outcome-watch.ts';

export interface CommandChannel extends CommandBus {
  close(): Promise<void>;
}

/** A command bus notified by PostgreSQL when a command is decided. Used by the API and the command line. */
export function openCommandChannel(options: {
  readonly publisher: Pick<Publisher, 'publish'>;
  /** Where `findOutcomes` reads; one connection listens there for notifications. */
  readonly databaseUrl: string;
  readonly findOutcomes: FindOutcomes;
  readonly timeoutMs: number;
  readonly log: Logger;
}): CommandChannel {
  const { publisher, databaseUrl, findOutcomes, timeoutMs, log } = options;
  const bus = createCommandBus({ publisher, findOutcomes, timeoutMs, now: Date.now });
  const listening = listen({
    url: databaseUrl,
    channel: DECIDED_CHANNEL,
    applicationName: 'tds-command-outcomes',
    log,
    onNotification: (id) => bus.notify(id),
  });
  return { ...bus, close: () => listening.close() };
}
