import pg from 'pg';

import { pause } from '../lifecycle.ts';
import type { Logger } from '../log.ts';

export interface PostgresListener {
  /** True while the connection stands: what is notified now is heard. */
  isConnected(): boolean;
  close(): Promise<void>;
}

/**
 * LISTENs to a channel on a connection of its own, which is made again when it is lost. Notifications sent meanwhile
 * are lost with it, so the caller also polls.
 */
export function listen(options: {
  url: string;
  channel: string;
  applicationName: string;
  log: Logger;
  onNotification: (payload: string) => void;
}): PostgresListener {
  const { url, channel, applicationName, log, onNotification } = options;
  const stop = new AbortController();
  let current: pg.Client | null = null;
  let isConnected = false;
  /** What is closed while it connects fails for nobody. */
  const warn = (error: unknown, message: string): void => {
    if (!stop.signal.aborted) log.warn({ err: error, channel }, message);
  };

  const listenOnce = async (): Promise<void> => {
    const client = new pg.Client({
      connectionString: url,
      application_name: applicationName,
      connectionTimeoutMillis: 5000,
      keepAlive: true,
    });
    const ended = new Promise<void>((resolve) => client.once('end', resolve));
    client.on('error', (error) => warn(error, 'lost the connection that listens'));
    client.on('notification', ({ payload }) => onNotification(payload ?? ''));
    try {
      await client.connect();
      current = client;
      await client.query(`LISTEN ${pg.escapeIdentifier(channel)}`);
      isConnected = true;
      if (!stop.signal.aborted) await ended;
    } finally {
      isConnected = false;
      current = null;
      await client.end().catch(() => {});
    }
  };

  const loop = (async () => {
    while (!stop.signal.aborted) {
      await listenOnce().catch((error: unknown) => warn(error, 'cannot listen'));
      await pause(500, stop.signal);
    }
  })();

  return {
    isConnected: () => isConnected,
    async close() {
      stop.abort();
      await current?.end().catch(() => {});
      await loop;
    },
  };
}
