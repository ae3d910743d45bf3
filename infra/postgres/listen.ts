import pg from 'pg';

import { pause } from '../lifecycle.ts';
import type { Logger } from '../log.ts';

export interface PostgresListener {
  /** True while the connection is open, so that notifications arrive. */
  isConnected(): boolean;
  close(): Promise<void>;
}

/**
 * LISTENs to a channel on a connection of its own, and reconnects when it is lost. Notifications sent in between are lost,
 * so the caller also polls.
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
  /** Closing while it connects is no failure. */
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
    client.on('error', (error) => warn(error, 'notification connection lost, reconnecting'));
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
      await listenOnce().catch((error: unknown) => warn(error, 'could not LISTEN, retrying'));
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
