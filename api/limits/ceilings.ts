import { z } from 'zod';

import { defineScript } from '../../infra/redis/client.ts';
import type { Counters } from '../../infra/redis/client.ts';
import type { Allowance } from './allowance.ts';

/** Counts the calls of a name that succeed, over a rolling hour. */
export interface Ceilings {
  /**
   * Takes a slot before the work is done, if one is free. Then `end` must be called: success keeps the slot for an
   * hour, failure gives it back. So however many calls run side by side, no more than `limit` succeed in any hour.
   */
  reserve(name: string, limit: number): Promise<Slot>;
}

export interface Slot extends Allowance {
  end(isSuccess: boolean): Promise<void>;
}

export const HOUR_MS = 3_600_000;

/** A slot that nobody ended (its process died, or did not hear that it had one) is free after so long. No call is as long. */
const HOLD_MS = 120_000;

/**
 * A name's successes are a list of `second:before:after`: what was counted before that second, and with it. The last
 * `after` less the first `before` is the sum of the list. So a name takes as much room as it has seconds with a success
 * in an hour (at most 3601 entries, some 80 kB), however high its ceiling, where a sorted set of calls takes 100 bytes a
 * call. A success leaves when its whole second is an hour old: no hour ever holds more than the limit, and a slot is
 * free at most a second late.
 */
const TRIM = `
local now = tonumber(ARGV[1])
local oldest = math.floor(now / 1000) - 3600
local function entry(i)
  local second, before, after = string.match(redis.call('LINDEX', KEYS[1], i) or '', '^(%d+):(%d+):(%d+)$')
  return tonumber(second), tonumber(before), tonumber(after)
end
local first, before = entry(0)
while first and first < oldest do
  redis.call('LPOP', KEYS[1])
  first, before = entry(0)
end
local last, lastBefore, after = entry(-1)
local done = first and after - before or 0
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)`;

/** KEYS: successes, slots held; ARGV: now (ms), limit, slot, hold (ms). Returns whether, calls left, ms. */
const reserveScript = defineScript(`${TRIM}
local limit = tonumber(ARGV[2])
local left = limit - done - redis.call('ZCARD', KEYS[2])
if left < 1 then return {0, 0, first and (first + 3601) * 1000 - now or 1000} end
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {1, left - 1, first and (first + 3601) * 1000 - now or 3600000}`);

/** KEYS: successes, slots held; ARGV: now (ms), slot. */
const keepScript = defineScript(`${TRIM}
redis.call('ZREM', KEYS[2], ARGV[2])
local second = math.floor(now / 1000)
if last and last >= second then
  redis.call('LSET', KEYS[1], -1, string.format('%d:%d:%d', last, lastBefore, after + 1))
else
  redis.call('RPUSH', KEYS[1], string.format('%d:%d:%d', second, after or 0, (after or 0) + 1))
end
redis.call('PEXPIRE', KEYS[1], 3602000)`);

/** KEYS: successes, slots held; ARGV: now (ms), slot. */
const giveBackScript = defineScript(`return redis.call('ZREM', KEYS[2], ARGV[2])`);

const reserved = z.tuple([z.int(), z.int(), z.int()]);

/** For all processes that share a Redis. `slots` makes names that no other process makes. */
export function sharedCeilings(counters: Counters, now: () => number, slots: () => string): Ceilings {
  return {
    async reserve(name, limit) {
      const keys = [`ceiling:${name}`, `ceiling-held:${name}`];
      const slot = slots();
      const answer = await counters.run(reserveScript, keys, [now(), limit, slot, HOLD_MS]);
      const [isAllowed, remaining, resetMs] = reserved.parse(answer);
      return {
        isAllowed: isAllowed === 1,
        limit,
        remaining,
        resetMs,
        async end(isSuccess) {
          if (isAllowed === 0) return;
          await counters.run(isSuccess ? keepScript : giveBackScript, keys, [now(), slot]);
        },
      };
    },
  };
}

/** In this process alone, while the shared ones cannot be had. */
export function localCeilings(now: () => number): Ceilings {
  interface Calls {
    /** When each success was, oldest first. */
    readonly done: number[];
    held: number;
  }
  const byName = new Map<string, Calls>();
  const trimmed = (name: string): Calls => {
    const calls = byName.get(name) ?? { done: [], held: 0 };
    byName.set(name, calls);
    while ((calls.done[0] ?? Infinity) <= now() - HOUR_MS) calls.done.shift();
    return calls;
  };
  return {
    async reserve(name, limit) {
      const calls = trimmed(name);
      const left = limit - calls.done.length - calls.held;
      const [first] = calls.done;
      const wait = first === undefined ? HOUR_MS : first + HOUR_MS - now();
      if (left < 1) {
        const resetMs = first === undefined ? 1000 : wait;
        return { isAllowed: false, limit, remaining: 0, resetMs, end: async () => {} };
      }
      calls.held += 1;
      return {
        isAllowed: true,
        limit,
        remaining: left - 1,
        resetMs: wait,
        async end(isSuccess) {
          calls.held -= 1;
          if (isSuccess) calls.done.push(now());
        },
      };
    },
  };
}
