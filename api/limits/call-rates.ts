import { z } from 'zod';

import { defineScript } from '../../infra/redis/client.ts';
import type { Counters } from '../../infra/redis/client.ts';
import type { Allowance } from './allowance.ts';

/** Counts calls over a rolling minute. A refused call does not count. */
export interface CallRates {
  take(name: string, limit: number): Promise<Allowance>;
}

export const MINUTE_MS = 60_000;

/** KEYS: when the calls were, oldest first; ARGV: now (ms), window (ms), limit. Returns whether, calls left, ms. */
const takeScript = defineScript(`
local now, window, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
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

/** For all processes that share a Redis. */
export function sharedCallRates(counters: Counters, now: () => number): CallRates {
  return {
    async take(name, limit) {
      const answer = await counters.run(takeScript, [`calls:${name}`], [now(), MINUTE_MS, limit]);
      const [isAllowed, remaining, resetMs] = taken.parse(answer);
      return { isAllowed: isAllowed === 1, limit, remaining, resetMs };
    },
  };
}

/** Names held at once by this process; the ones that called longest ago go first. */
const NAMES = 50_000;

/** In this process alone, while the shared ones cannot be had. */
export function localCallRates(now: () => number): CallRates {
  const calls = new Map<string, number[]>();
  return {
    async take(name, limit) {
      const at = now();
      const inWindow = (calls.get(name) ?? []).filter((time) => at - time < MINUTE_MS);
      const resetMs = (inWindow[0] ?? at) + MINUTE_MS - at;
      if (inWindow.length >= limit) return { isAllowed: false, limit, remaining: 0, resetMs };
      calls.delete(name);
      calls.set(name, [...inWindow, at]);
      for (const oldest of calls.keys()) {
        if (calls.size <= NAMES) break;
        calls.delete(oldest);
      }
      return { isAllowed: true, limit, remaining: limit - inWindow.length - 1, resetMs };
    },
  };
}
