import { z } from 'zod';

import { defineScript } from '../../infra/redis/client.ts';
import type { Counters } from '../../infra/redis/client.ts';

/**
 * Failed key checks by client address. An address's window begins with its first failure; after ten failures the address
 * is blocked until the window ends. Calls rejected by the block do not count.
 */
export interface AddressFailures {
  /** Milliseconds until the block of an address ends; 0 when it is not blocked. */
  blockedFor(address: string): Promise<number>;
  /** Counts a failure and returns 0; for an address that is already blocked returns the same as `blockedFor`. */
  record(address: string): Promise<number>;
}

export const MAX_FAILURES = 10;

/** KEYS: the address; ARGV: now (ms), window (ms), maximum, whether to count one. */
const failuresScript = defineScript(`
local now, window, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local began = tonumber(redis.call('HGET', KEYS[1], 'began') or '')
if began and now - began < window then
  if tonumber(redis.call('HGET', KEYS[1], 'failures')) >= most then return began + window - now end
elseif ARGV[4] == '1' then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'began', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], window)
end
if ARGV[4] == '1' then redis.call('HINCRBY', KEYS[1], 'failures', 1) end
return 0`);

/** Shared by all processes through Redis. */
export function sharedAddressFailures(
  counters: Counters,
  windowMs: number,
  now: () => number,
): AddressFailures {
  const run = async (address: string, isFailure: 0 | 1): Promise<number> =>
    z
      .int()
      .parse(
        await counters.run(
          failuresScript,
          [`failures:${address}`],
          [now(), windowMs, MAX_FAILURES, isFailure],
        ),
      );
  return {
    blockedFor: async (address) => await run(address, 0),
    record: async (address) => await run(address, 1),
  };
}

/** Bounds the memory of this process; the oldest address is evicted first. */
const MAX_ADDRESSES = 50_000;

/**
 * Caches blocks until they end: Redis is not asked again about a blocked address, and the block outlives an outage of
 * Redis.
 */
export function cacheBlocks(failures: AddressFailures, now: () => number): AddressFailures {
  const ends = new Map<string, number>();
  const remember = (address: string, left: number): number => {
    if (left <= 0) return 0;
    ends.delete(address);
    ends.set(address, now() + left);
    evictOldest(ends);
    return left;
  };
  const cached = (address: string): number => (ends.get(address) ?? 0) - now();
  return {
    async blockedFor(address) {
      const left = cached(address);
      if (left > 0) return left;
      ends.delete(address);
      return remember(address, await failures.blockedFor(address));
    },
    async record(address) {
      const left = cached(address);
      return left > 0 ? left : remember(address, await failures.record(address));
    },
  };
}

/** For this process alone, while Redis is unavailable. */
export function localAddressFailures(windowMs: number, now: () => number): AddressFailures {
  const windows = new Map<string, { readonly startedAt: number; failures: number }>();
  const current = (address: string) => {
    const window = windows.get(address);
    return window !== undefined && now() - window.startedAt < windowMs ? window : undefined;
  };
  const blocked = (address: string): number => {
    const window = current(address);
    return window !== undefined && window.failures >= MAX_FAILURES ? window.startedAt + windowMs - now() : 0;
  };
  return {
    blockedFor: async (address) => blocked(address),
    async record(address) {
      const left = blocked(address);
      if (left > 0) return left;
      const window = current(address) ?? { startedAt: now(), failures: 0 };
      window.failures += 1;
      windows.delete(address);
      windows.set(address, window);
      evictOldest(windows);
      return 0;
    },
  };
}

function evictOldest(entries: Map<string, unknown>): void {
  for (const oldest of entries.keys()) {
    if (entries.size <= MAX_ADDRESSES) return;
    entries.delete(oldest);
  }
}
