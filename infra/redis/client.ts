import { createHash } from 'node:crypto';

import { Redis } from 'ioredis';

import { AppError } from '../../schemas/errors.ts';
import type { Logger } from '../log.ts';

/** A Lua script: what it does, no other client sees half of. */
export interface Script {
  readonly lua: string;
  readonly sha: string;
}

/** Redis, as far as the service needs it: scripts over counters that may be lost. */
export interface Counters {
  /**
   * Runs a script and gives what it returns. Throws a retryable `STORE_UNAVAILABLE` at once while Redis is away, and
   * within `timeoutMs` when it hangs. A script may have run although it threw: nothing is sent twice.
   */
  run(script: Script, keys: readonly string[], args: readonly (string | number)[]): Promise<unknown>;
  /** Asks it; false while it does not answer, or takes no writes. */
  answers(): Promise<boolean>;
  /** Resolves when Redis answers, or, with a warning, when it has not for so long. */
  settled(ms: number): Promise<void>;
  close(): void;
}

/** Between two attempts to connect, or to write: so soon does the service notice that Redis is back. */
const LONGEST_PAUSE_MS = 500;

export function defineScript(lua: string): Script {
  return { lua, sha: createHash('sha1').update(lua).digest('hex') };
}

export function openCounters(
  url: string,
  options: { readonly keyPrefix: string; readonly timeoutMs: number; readonly log: Logger },
): Counters {
  const { keyPrefix, timeoutMs, log } = options;
  const redis = new Redis(url, {
    keyPrefix,
    // A connection that owes an answer for so long is dropped, and a new one is made: all that wait on it fail then, and
    // all that follow at once. This is the one timer a hung Redis can hold a request up for.
    socketTimeout: timeoutMs,
    connectTimeout: Math.max(timeoutMs, 1000),
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    retryStrategy: (times) => Math.min(20 * times, LONGEST_PAUSE_MS),
    disableClientInfo: true,
    connectionName: 'tds',
  });
  /** What a server that answers refused (out of memory, a replica, loading): it is away until it takes a write. */
  let fault: Error | null = null;
  let isAway = true;
  let wasUp = false;
  let isClosed = false;
  /** Of the last connection that failed. */
  let failure: string | undefined;
  const warn = (): void =>
    log.warn({ reason: fault?.message ?? failure }, 'Redis is away: limits are counted by each process');
  const tell = (): void => {
    const isAwayNow = redis.status !== 'ready' || fault !== null;
    if (isAwayNow === isAway || isClosed) return;
    isAway = isAwayNow;
    if (isAwayNow) warn();
    else log.info(wasUp ? 'Redis is back' : 'Redis answers');
    wasUp ||= !isAwayNow;
  };
  const takesWrites = async (): Promise<boolean> => {
    try {
      await redis.set('probe', '1', 'PX', 1000);
      return true;
    } catch (error) {
      if (isRefusal(error)) suspect(error);
      return false;
    }
  };
  const suspect = (error: Error): void => {
    if (fault !== null || isClosed) return;
    fault = error;
    tell();
    const probe = async (): Promise<void> => {
      if (isClosed) return;
      if (await takesWrites()) {
        fault = null;
        tell();
      } else setTimeout(() => void probe(), LONGEST_PAUSE_MS).unref();
    };
    setTimeout(() => void probe(), LONGEST_PAUSE_MS).unref();
  };
  redis.on('ready', tell);
  redis.on('close', tell);
  // Without a listener every failed attempt to connect would be printed. The error itself holds what was sent, which may
  // be a password.
  redis.on('error', ({ message }: Error) => {
    failure = message;
    log.debug({ reason: message }, 'Redis connection');
  });

  return {
    async run({ lua, sha }, keys, args) {
      const rest = [keys.length, ...keys, ...args] as const;
      try {
        if (fault !== null) throw fault;
        return await redis.evalsha(sha, ...rest).catch(async (error: unknown) => {
          if (!isRefusal(error) || !error.message.startsWith('NOSCRIPT ')) throw error;
          return await redis.eval(lua, ...rest);
        });
      } catch (error) {
        if (isRefusal(error)) suspect(error);
        tell();
        throw new AppError('STORE_UNAVAILABLE', 'Redis did not answer', { retryable: true, cause: error });
      }
    },
    answers: async () => (await takesWrites()) && fault === null,
    async settled(ms) {
      const settled = Promise.withResolvers<void>();
      const timer = setTimeout(settled.resolve, ms);
      redis.once('ready', settled.resolve);
      if (!isAway) settled.resolve();
      await settled.promise;
      clearTimeout(timer);
      if (isAway) warn();
    },
    close() {
      isClosed = true;
      redis.disconnect();
    },
  };
}

/** An error that Redis answered; the first word of its message is its code. */
function isRefusal(error: unknown): error is Error {
  return error instanceof Error && error.name === 'ReplyError';
}
