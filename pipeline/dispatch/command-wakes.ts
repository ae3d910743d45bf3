import type { Logger } from '../../infra/log.ts';
import { listen } from '../../infra/postgres/listen.ts';
import type { PostgresListener } from '../../infra/postgres/listen.ts';
import { DECIDED_CHANNEL } from '../../schemas/messages/commands.ts';

/** Shortest time between two wake-ups: hundreds of commands may be decided in a second. */
const SPACING_MS = 200;

/** Calls `wake` when a command is decided: webhooks, their owners or requests to the dispatcher may have changed. */
export function listenForCommands(databaseUrl: string, log: Logger, wake: () => void): PostgresListener {
  let isSpacing = false;
  let isPending = false;
  const onNotification = (): void => {
    isPending = isSpacing;
    if (isSpacing) return;
    isSpacing = true;
    wake();
    setTimeout(() => {
      isSpacing = false;
      if (isPending) onNotification();
    }, SPACING_MS).unref();
  };
  return listen({
    url: databaseUrl,
    channel: DECIDED_CHANNEL,
    applicationName: 'tds-dispatch-commands',
    log,
    onNotification,
  });
}
