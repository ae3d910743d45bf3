import { z } from 'zod';

import { defineScript } from '../../infra/redis/client.ts';
import type { Counters } from '../../infra/redis/client.ts';
import { readClasses } from '../http/clickhouse.ts';
import { HOUR_MS } from '../http/times.ts';
import type { Allowance } from './allowance.ts';

/** Limits the successful calls of a key in a rolling hour. */
export interface Ceilings {
  /**
   * Reserves a slot before the call runs, if one is free. `end` must follow: a success occupies the slot for an hour, a
   * failure releases it. So however many calls run concurrently, at most `limit` succeed in any hour.
   */
  readonly reserve: (name: string, limit: number) => Promise<Slot>;
}

export interface Slot extends Allowance {
  end(isSuccess: boolean): Promise<void>;
}

/**
 * A slot that was never ended (its process died, or the answer of Redis was lost) expires. Longer than an export takes to
 * begin, which is the longest call: a success after its slot has expired could exceed the ceiling.
 */
export const SLOT_TTL_MS = readClasses.export.waitMs + readClasses.export.readMs + 60_000;

/**
 * A key's successes are a list of `second:before:after`: the running count before and after that second. The last `after`
 * minus the first `before` is the number of successes. So memory is bounded by the seconds of an hour (at most 3601
 * entries, 80 kB), not by the ceiling; a sorted set takes 100 bytes a call. A success expires when its whole second is an
 * hour old: no hour exceeds the limit, and a slot is released at most a second late.
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
-- The clocks of processes differ a little; a success further in the future is from before a clock was set back.
if last and last >= math.floor(now / 1000) + 3600 then
  redis.call('DEL', KEYS[1])
  first, before, last, lastBefore, after = nil
end
local done = first and after - before or 0
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)`;

/**
 * KEYS: successes, reserved slots; ARGV: now (ms), limit, slot, slot TTL (ms). Returns isAllowed, remaining, resetMs. While
 * slots are only reserved, a rejected call gets the time for which they are occupied if their calls succeed now: after a
 * shorter one it would be rejected again, which counts as a failure of its address.
 */
const reserveScript = defineScript(`${TRIM}
local limit = tonumber(ARGV[2])
local left = limit - done - redis.call('ZCARD', KEYS[2])
if left < 1 then return {0, 0, ((first or math.floor(now / 1000)) + 3601) * 1000 - now} end
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {1, left - 1, first and (first + 3601) * 1000 - now or 3600000}`);

/** KEYS: successes, reserved slots; ARGV: now (ms), slot. */
const succeedScript = defineScript(`${TRIM}
redis.call('ZREM', KEYS[2], ARGV[2])
local second = math.floor(now / 1000)
if last and last >= second then
  redis.call('LSET', KEYS[1], -1, string.format('%d:%d:%d', last, lastBefore, after + 1))
else
  redis.call('RPUSH', KEYS[1], string.format('%d:%d:%d', second, after or 0, (after or 0) + 1))
end
redis.call('PEXPIRE', KEYS[1], 3602000)`);

/** KEYS: successes, reserved slots; ARGV: now (ms), slot. */
const releaseScript = defineScript(`return redis.call('ZREM', KEYS[2], ARGV[2])`);

const reserved = z.tuple([z.int(), z.int(), z.int()]);

/** Shared by all processes through Redis. */
export function sharedCeilings(counters: Counters, now: () => number, uniqueId: () => string): Ceilings {
  return {
    async reserve(name, limit) {
      const keys = [`ceiling:${name}`, `ceiling-held:${name}`];
      const slot = uniqueId();
      const answer = await counters.run(reserveScript, keys, [now(), limit, slot, SLOT_TTL_MS]);
      const [isAllowed, remaining, resetMs] = reserved.parse(answer);
      return {
        isAllowed: isAllowed === 1,
        limit,
        remaining,
        resetMs,
        async end(isSuccess) {
          if (isAllowed === 0) return;
          await counters.run(isSuccess ? succeedScript : releaseScript, keys, [now(), slot]);
        },
      };
    },
  };
}

/** For this process alone, while Redis is unavailable. */
export function localCeilings(now: () => number): Ceilings {
  interface Calls {
    /** Times of the successes, oldest first. */
    readonly successes: number[];
    reserved: number;
  }
  const byName = new Map<string, Calls>();
  const trimmed = (name: string): Calls => {
    const calls = byName.get(name) ?? { successes: [], reserved: 0 };
    byName.set(name, calls);
    while ((calls.successes[0] ?? Infinity) <= now() - HOUR_MS) calls.successes.shift();
    // As in Redis: from before the clock was set back.
    if ((calls.successes.at(-1) ?? 0) >= now() + HOUR_MS) calls.successes.length = 0;
    return calls;
  };
  return {
    async reserve(name, limit) {
      const calls = trimmed(name);
      const left = limit - calls.successes.length - calls.reserved;
      const [first] = calls.successes;
      const wait = first === undefined ? HOUR_MS : first + HOUR_MS - now();
      if (left < 1) return { isAllowed: false, limit, remaining: 0, resetMs: wait, end: async () => {} };
      calls.reserved += 1;
      return {
        isAllowed: true,
        limit,
        remaining: left - 1,
        resetMs: wait,
        async end(isSuccess) {
          calls.reserved -= 1;
          if (isSuccess) calls.successes.push(now());
        },
      };
    },
  };
}
