import { z } from 'zod';

import { createLruCache } from '../../infra/lru.ts';
import { defineScript } from '../../infra/redis/client.ts';
import type { Counters } from '../../infra/redis/client.ts';
import { HOUR_MS } from '../http/times.ts';

/** Limits the bytes of a caller in an hour, which begins with the first of them. */
export interface ByteBudgets {
  /** Takes the bytes and returns 0; where they exceed the budget, takes none and returns the milliseconds until it is renewed. */
  readonly take: (name: string, bytes: number, limit: number) => Promise<number>;
}

/** KEYS: bytes taken; ARGV: bytes, window (ms), limit. */
const takeScript = defineScript(`
local used, bytes = tonumber(redis.call('GET', KEYS[1]) or '0'), tonumber(ARGV[1])
if used + bytes > tonumber(ARGV[3]) then return math.max(1, redis.call('PTTL', KEYS[1])) end
redis.call('INCRBY', KEYS[1], bytes)
if used == 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0`);

/** Shared by all processes through Redis. */
export function sharedByteBudgets(counters: Counters): ByteBudgets {
  return {
    take: async (name, bytes, limit) =>
      z.int().parse(await counters.run(takeScript, [`bytes:${name}`], [bytes, HOUR_MS, limit])),
  };
}

/** Bounds the memory of this process. */
const MAX_CALLERS = 50_000;

/** For this process alone, while Redis is unavailable. */
export function localByteBudgets(now: () => number): ByteBudgets {
  const windows = createLruCache<string, { readonly endsAt: number; readonly used: number }>(MAX_CALLERS);
  return {
    async take(name, bytes, limit) {
      const known = windows.get(name);
      const { endsAt, used } =
        known === undefined || known.endsAt <= now() ? { endsAt: now() + HOUR_MS, used: 0 } : known;
      if (used + bytes > limit) return endsAt - now();
      windows.set(name, { endsAt, used: used + bytes });
      return 0;
    },
  };
}
