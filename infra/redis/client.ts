import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import { Redis } from 'ioredis';

import { AppError } from '../../schemas/errors.ts';
import type { Logger } from '../log.ts';
import { parseSentinelUrl } from './sentinel.ts';

/** A Lua script; Redis runs it atomically. */
export interface Script {
  readonly lua: string;
  readonly sha: string;
}

/** The use of Redis by this service: scripts over counters that may be lost. */
export interface Counters {
  /**
   * Runs a script and returns its result. Throws a retryable `STORE_UNAVAILABLE`: at once while Redis is unavailable,
   * after `timeoutMs` when it hangs. The script may have run nevertheless; it is not retried.
   */
  run(script: Script, keys: readonly string[], args: readonly (string | number)[]): Promise<unknown>;
  /** False while Redis does not answer or rejects writes. */
  answers(): Promise<boolean>;
  /** Resolves when Redis answers, or with a warning after `ms`. */
  settled(ms: number): Promise<void>;
  close(): void;
}

/** Longest delay between two attempts to connect or write, so the longest time to notice that Redis is back. */
const MAX_DELAY_MS = 500;

/** A script works on several keys, which a cluster may keep on different servers. */
const IS_CLUSTER =
  'REDIS_URL points to a Redis Cluster, which is not supported: set a single server, or Sentinels (redis+sentinel://…)';

export function defineScript(lua: string): Script {
  return { lua, sha: createHash('sha1').update(lua).digest('hex') };
}

export function openCounters(
  url: string,
  options: { readonly keyPrefix: string; readonly timeoutMs: number; readonly log: Logger },
): Counters {
  const { keyPrefix, timeoutMs, log } = options;
  const common = {
    keyPrefix,
    // Bounds what ioredis sends itself while it connects; `answerOf` bounds commands.
    socketTimeout: Math.max(timeoutMs, 5000),
    // Of all addresses of the host: bin/tds.ts bounds the wait for each.
    connectTimeout: Math.max(timeoutMs, 5000),
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    retryStrategy: (times: number) => Math.min(20 * times, MAX_DELAY_MS),
    // A master that was demoted keeps its connections; another one may lead to its successor.
    reconnectOnError: ({ message }: Error) => message.startsWith('READONLY '),
    disableClientInfo: true,
    connectionName: 'tds',
  };
  const sentinel = parseSentinelUrl(url);
  const redis = sentinel === null ? new Redis(url, common) : new Redis({ ...common, ...sentinel });
  const availability = watchAvailability(redis, timeoutMs, log);
  redis.once('ready', () => void warnOfEviction(redis, log));
  const writeTogether = gatherWrites(redis);
  return {
    async run({ lua, sha }, keys, args) {
      const rest = [keys.length, ...keys, ...args] as const;
      try {
        availability.assertNoFault();
        writeTogether();
        const answer = redis.evalsha(sha, ...rest).catch(async (error: unknown) => {
          if (!isErrorReply(error) || !error.message.startsWith('NOSCRIPT ')) throw error;
          return await redis.eval(lua, ...rest);
        });
        return await answerOf(redis, answer, timeoutMs);
      } catch (error) {
        availability.failed(error);
        throw new AppError('STORE_UNAVAILABLE', 'Redis did not answer', { retryable: true, cause: error });
      }
    },
    answers: availability.answers,
    async settled(ms) {
      const settled = Promise.withResolvers<void>();
      const timer = setTimeout(settled.resolve, ms);
      redis.once('ready', settled.resolve);
      if (availability.isUp()) settled.resolve();
      await settled.promise;
      clearTimeout(timer);
      if (!availability.isUp()) availability.warn();
    },
    close() {
      availability.stop();
      redis.disconnect();
    },
  };
}

/** Asks INFO, because managed servers forbid CONFIG. Silent where that is forbidden, too. */
async function warnOfEviction(redis: Redis, log: Logger): Promise<void> {
  const info = await redis.info('memory').catch(() => '');
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1] ?? 'volatile-ttl';
  if (policy === 'volatile-ttl' || !/^maxmemory:[1-9]/m.test(info)) return;
  log.warn(
    { policy },
    'Redis has a maxmemory-policy other than volatile-ttl; see "Redis" under "Roles and stores" in docs/operations.md',
  );
}

/**
 * Returns a function that has the commands of this turn of the event loop written together at its end, in one system
 * call.
 */
function gatherWrites(redis: Redis): () => void {
  let corked: Redis['stream'] | null = null;
  return () => {
    const { status, stream } = redis;
    if (status !== 'ready' || stream === corked) return;
    corked = stream;
    stream.cork();
    setImmediate(() => {
      if (corked === stream) corked = null;
      stream.uncork();
    });
  };
}

/**
 * Waits for the answer of a command. After `timeoutMs` the connection is dropped and replaced; commands waiting on it fail,
 * later ones fail at once. This bounds how long a hung Redis can delay a request.
 */
async function answerOf<T>(redis: Redis, command: Promise<T>, timeoutMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let dropping: NodeJS.Immediate | undefined;
  // When the command is written, at the end of this turn.
  const written = setImmediate(() => {
    timer = setTimeout(() => {
      // While this process was busy, the answer may have arrived: Node.js runs timers, then reads sockets, then this.
      dropping = setImmediate(() => redis.stream.destroy(new Error(`No answer within ${timeoutMs} ms`)));
    }, timeoutMs);
  });
  try {
    return await command;
  } finally {
    clearImmediate(written);
    clearTimeout(timer);
    clearImmediate(dropping);
  }
}

/** Watches the connection and the errors that Redis answers, and logs when it becomes available or unavailable. */
function watchAvailability(redis: Redis, timeoutMs: number, log: Logger) {
  /** An error answered by a reachable server (out of memory, a replica, loading): unavailable until a write succeeds. */
  let fault: Error | null = null;
  const clusterFault = new Error(IS_CLUSTER);
  let isUp = false;
  let wasUp = false;
  let isStopped = false;
  /** Message of the last failed connection. */
  let failure: string | undefined;
  const warn = (): void =>
    log.warn({ reason: fault?.message ?? failure }, 'Redis unavailable, limits counted per process');
  const update = (): void => {
    const isUpNow = redis.status === 'ready' && fault === null;
    if (isUpNow === isUp || isStopped) return;
    isUp = isUpNow;
    if (!isUp) warn();
    else log.info(wasUp ? 'Redis available again' : 'Redis connected');
    wasUp ||= isUp;
  };
  const acceptsWrites = async (): Promise<boolean> => {
    try {
      await answerOf(redis, redis.set('probe', '1', 'PX', 1000), timeoutMs);
      return true;
    } catch (error) {
      failed(error);
      return false;
    }
  };
  const probeUntilAccepted = async (error: Error): Promise<void> => {
    while (!isStopped && fault === error) {
      await sleep(MAX_DELAY_MS, undefined, { ref: false });
      if ((await acceptsWrites()) && fault === error) fault = null;
    }
    update();
  };
  const refuseCluster = async (): Promise<void> => {
    const info = await redis.info('cluster').catch(() => '');
    const isCluster = /^cluster_enabled:1/m.test(info);
    if (isCluster) fault = clusterFault;
    else if (fault === clusterFault) fault = null;
    update();
  };
  const failed = (error: unknown): void => {
    if (isErrorReply(error) && fault === null && !isStopped) {
      fault = error;
      void probeUntilAccepted(error);
    }
    update();
  };
  redis.on('ready', update);
  redis.on('ready', () => void refuseCluster());
  redis.on('close', update);
  // Without a listener ioredis prints every failed attempt. Only the message is logged: the error holds the command sent,
  // which may be a password.
  redis.on('error', ({ message }: Error) => {
    failure = message;
    log.debug({ reason: message }, 'Redis connection failed');
  });
  return {
    isUp: () => isUp,
    answers: async () => (await acceptsWrites()) && fault === null,
    assertNoFault() {
      if (fault !== null) throw fault;
    },
    failed,
    warn,
    stop: () => void (isStopped = true),
  };
}

/** An error answered by Redis; the first word of its message is its code. */
function isErrorReply(error: unknown): error is Error {
  return error instanceof Error && error.name === 'ReplyError';
}
