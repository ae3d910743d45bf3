import { z } from 'zod';

import { pause } from '../../infra/lifecycle.ts';
import { defineScript } from '../../infra/redis/client.ts';
import type { Counters } from '../../infra/redis/client.ts';
import { hashSecret } from '../auth/api-key.ts';
import { throttled, unavailable } from '../http/errors.ts';

/** Limits failed log-ins, for all processes that share a Redis. Without Redis nobody logs in. */
export interface LoginAttempts {
  /**
   * Begins an attempt that counts for every one of these names; throws 429 when one of them has failed too often, and 503
   * while that cannot be known. Attempts under way might all fail, so no more of them run at once than may still fail:
   * one that is too many waits until others have ended. So guesses made all at once do not pass the limit, and right
   * log-ins do not meet it. `end` must be called.
   */
  begin(names: readonly string[]): Promise<{ end(isFailure: boolean): Promise<void> }>;
}

/** Failed log-ins a minute. A user's limit holds for every address, so that many addresses do not help. */
const LOGIN_WINDOW_MS = 60_000;
const limitOf = (name: string): number => (name.startsWith('ip:') ? 30 : 10);

/** An attempt that nobody ended (its process died) counts as under way for so long. None takes as long. */
const HOLD_MS = 30_000;

/** Attempts of other processes are looked after so often. */
const POLL_MS = 25;

/** The longest that an attempt waits for others. */
const WAIT_MS = 15_000;

/**
 * KEYS: failures and attempts under way of each name, in turn; ARGV: now (ms), window (ms), attempt, hold (ms), and the
 * limit of each name. Returns the milliseconds to wait for the end of a full window, -1 while as many are under way as
 * may fail, and 0 when the attempt has begun.
 */
const beginScript = defineScript(`
local now, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local isBusy = false
for i = 1, #KEYS, 2 do
  local limit = tonumber(ARGV[4 + (i + 1) / 2])
  local began = tonumber(redis.call('HGET', KEYS[i], 'began') or '')
  local failures = 0
  if began and now - began < window then failures = tonumber(redis.call('HGET', KEYS[i], 'failures')) end
  if failures >= limit then return began + window - now end
  redis.call('ZREMRANGEBYSCORE', KEYS[i + 1], '-inf', now)
  if failures + redis.call('ZCARD', KEYS[i + 1]) >= limit then isBusy = true end
end
if isBusy then return -1 end
for i = 2, #KEYS, 2 do
  redis.call('ZADD', KEYS[i], now + tonumber(ARGV[4]), ARGV[3])
  redis.call('PEXPIRE', KEYS[i], ARGV[4])
end
return 0`);

/** KEYS: as above; ARGV: now (ms), window (ms), attempt, whether it failed. */
const endScript = defineScript(`
local now, window = tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 1, #KEYS, 2 do
  redis.call('ZREM', KEYS[i + 1], ARGV[3])
  if ARGV[4] == '1' then
    local began = tonumber(redis.call('HGET', KEYS[i], 'began') or '')
    if not began or now - began >= window then
      redis.call('DEL', KEYS[i])
      redis.call('HSET', KEYS[i], 'began', ARGV[1])
      redis.call('PEXPIRE', KEYS[i], window)
    end
    redis.call('HINCRBY', KEYS[i], 'failures', 1)
  end
end`);

/** @param options.ids makes names of attempts that no other process makes */
export function createLoginAttempts(options: {
  readonly counters: Counters;
  readonly now: () => number;
  readonly ids: () => string;
}): LoginAttempts {
  const { counters, now, ids } = options;
  /** How many of this process are under way or ask, by name: the others wait here and do not ask Redis. */
  const here = new Map<string, number>();
  let ended = Promise.withResolvers<void>();
  const enter = (names: readonly string[]): boolean => {
    if (names.some((name) => (here.get(name) ?? 0) >= limitOf(name))) return false;
    for (const name of names) here.set(name, (here.get(name) ?? 0) + 1);
    return true;
  };
  const leave = (names: readonly string[]): void => {
    for (const name of names) {
      const left = (here.get(name) ?? 1) - 1;
      if (left === 0) here.delete(name);
      else here.set(name, left);
    }
    ended.resolve();
    ended = Promise.withResolvers();
  };

  return {
    async begin(names) {
      const deadline = performance.now() + WAIT_MS;
      while (!enter(names)) await ended.promise;
      // Hashed: people type passwords where a name is asked for.
      const keys = names.map(hashSecret).flatMap((hash) => [`login:${hash}`, `login-held:${hash}`]);
      const attempt = ids();
      const limits = names.map(limitOf);
      const ask = async (): Promise<number> => {
        const args = [now(), LOGIN_WINDOW_MS, attempt, HOLD_MS, ...limits];
        return z.int().parse(await counters.run(beginScript, keys, args));
      };
      let isBegun = false;
      try {
        let wait = await ask();
        while (wait === -1 && performance.now() < deadline) {
          await pause(POLL_MS);
          wait = await ask();
        }
        if (wait === -1) throw unavailable('unavailable', 'Too many log-ins are under way.', 1);
        if (wait > 0) throw throttled(wait / 1000);
        isBegun = true;
      } finally {
        if (!isBegun) leave(names);
      }
      return {
        async end(isFailure) {
          try {
            await counters.run(endScript, keys, [now(), LOGIN_WINDOW_MS, attempt, isFailure ? 1 : 0]);
          } catch {
            // Lost like every counter of a Redis that went away; no log-in begins until it is back.
          } finally {
            leave(names);
          }
        },
      };
    },
  };
}
