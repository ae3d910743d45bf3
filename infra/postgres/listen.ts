import pg from 'pg';

import type { Logger } from '../log.ts';
import { retry } from '../retry.ts';

export interface PostgresListener {
  /** True while the connection is open, so that notifications arrive. */
  isConnected(): boolean;
  close(): Promise<void>;
}

/** Longest delay between two attempts to connect: callers poll meanwhile. */
const MAX_DELAY_MS = 500;
/** Of silence before the server is probed: nothing else is sent to it. By default Linux waits two hours. */
const KEEP_ALIVE_MS = 10_000;

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

  /** Listens until the connection is lost, which is thrown. */
  const listenOnce = async (): Promise<never> => {
    const client = new pg.Client({
      connectionString: url,
      application_name: applicationName,
      connectionTimeoutMillis: 5000,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    });
    const lost = Promise.withResolvers<never>();
    lost.promise.catch(() => {}); // may reject while it still connects
    client.on('error', lost.reject);
    client.once('end', () => lost.reject(new Error('connection closed')));
    client.on('notification', ({ payload }) => onNotification(payload ?? ''));
    try {
      await client.connect();
      current = client;
      await client.query(`LISTEN ${pg.escapeIdentifier(channel)}`);
      stop.signal.throwIfAborted();
      isConnected = true;
      return await lost.promise;
    } finally {
      isConnected = false;
      current = null;
      await client.end().catch(() => {});
    }
  };
  const listening = retry(listenOnce, {
    isRetryable: () => true,
    signal: stop.signal,
    maxMs: MAX_DELAY_MS,
    onRetry: (error) => log.warn({ err: error, channel }, 'notification connection lost, reconnecting'),
  }).catch(() => {}); // ends when stopped only

  return {
    isConnected: () => isConnected,
    async close() {
      stop.abort();
      await current?.end().catch(() => {});
      await listening;
    },
  };
}
