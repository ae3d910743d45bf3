import { z } from 'zod';

import { createLruCache } from '../../infra/lru.ts';
import { defineScript } from '../../infra/redis/client.ts';
import type { Counters } from '../../infra/redis/client.ts';
import type { Allowance } from './allowance.ts';

/** Limits the calls of a caller in a rolling minute. A rejected call does not count. */
export interface CallRates {
  readonly take: (name: string, limit: number) => Promise<Allowance>;
}

export const MINUTE_MS = 60_000;

/** KEYS: times of the calls, oldest first; ARGV: now (ms), window (ms), limit. Returns isAllowed, remaining, resetMs. */
const takeScript = defineScript(`
local now, window, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local last = tonumber(redis.call('LINDEX', KEYS[1], -1) or '')
-- The clocks of processes differ by less: it is from before the clock was set back.
if last and last >= now + window then redis.call('DEL', KEYS[1]) end
local first = tonumber(redis.call('LINDEX', KEYS[1], 0) or '')
while first and first <= now - window do
  redis.call('LPOP', KEYS[1])
  first = tonumber(redis.call('LINDEX', KEYS[1], 0) or '')
end
local used = redis.call('LLEN', KEYS[1])
local wait = (first or now) + window - now
if used >= limit then return {0, 0, wait} end
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], window)
return {1, limit - used - 1, wait}`);

const taken = z.tuple([z.int(), z.int(), z.int()]);

/** Shared by all processes through Redis. */
export function sharedCallRates(counters: Counters, now: () => number): CallRates {
  return {
    async take(name, limit) {
      const answer = await counters.run(takeScript, [`calls:${name}`], [now(), MINUTE_MS, limit]);
      const [isAllowed, remaining, resetMs] = taken.parse(answer);
      return { isAllowed: isAllowed === 1, limit, remaining, resetMs };
    },
  };
}

/** Bounds the memory of this process. */
const MAX_CALLERS = 50_000;

/** For this process alone, while Redis is unavailable. */
export function localCallRates(now: () => number): CallRates {
  const calls = createLruCache<string, number[]>(MAX_CALLERS);
  return {
    async take(name, limit) {
      const at = now();
      const inWindow = (calls.get(name) ?? []).filter((time) => Math.abs(at - time) < MINUTE_MS);
      const resetMs = (inWindow[0] ?? at) + MINUTE_MS - at;
      if (inWindow.length >= limit) return { isAllowed: false, limit, remaining: 0, resetMs };
      calls.set(name, [...inWindow, at]);
      return { isAllowed: true, limit, remaining: limit - inWindow.length - 1, resetMs };
    },
  };
}
