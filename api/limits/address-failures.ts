import { z } from 'zod';

import { createLruCache } from '../../infra/lru.ts';
import { defineScript } from '../../infra/redis/client.ts';
import type { Counters } from '../../infra/redis/client.ts';
import { FAILURE_WINDOW } from './failure-window.ts';

/**
 * Failed key checks by client address. An address's window begins with its first failure; after ten failures the address
 * is blocked until the window ends. Calls rejected by the block do not count.
 */
export interface AddressFailures {
  /** Milliseconds until the block of an address ends; 0 when it is not blocked. */
  readonly blockedFor: (address: string) => Promise<number>;
  /** Counts a failure and returns 0; for an address that is already blocked returns the same as `blockedFor`. */
  readonly record: (address: string) => Promise<number>;
}

export const MAX_FAILURES = 10;

/** KEYS: the address; ARGV: now (ms), window (ms), maximum, whether to count one. */
const failuresScript = defineScript(`${FAILURE_WINDOW}
local now, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local failures, left = failuresOf(KEYS[1], now, window)
if failures >= tonumber(ARGV[3]) then return left end
if ARGV[4] == '1' then countFailure(KEYS[1], now, window) end
return 0`);

const milliseconds = z.int();

/** Shared by all processes through Redis. */
export function sharedAddressFailures(
  counters: Counters,
  windowMs: number,
  now: () => number,
): AddressFailures {
  const run = async (address: string, isFailure: 0 | 1): Promise<number> => {
    const args = [now(), windowMs, MAX_FAILURES, isFailure];
    return milliseconds.parse(await counters.run(failuresScript, [`failures:${address}`], args));
  };
  return {
    blockedFor: async (address) => await run(address, 0),
    record: async (address) => await run(address, 1),
  };
}

/** Bounds the memory of this process. */
const MAX_ADDRESSES = 50_000;

/**
 * Caches blocks until they end: Redis is not asked again about a blocked address, and the block outlives an outage of
 * Redis.
 */
export function cacheBlocks(failures: AddressFailures, windowMs: number, now: () => number): AddressFailures {
  const ends = createLruCache<string, number>(MAX_ADDRESSES);
  const cachedOr = async (address: string, read: (address: string) => Promise<number>): Promise<number> => {
    const cached = (ends.get(address) ?? 0) - now();
    // No block is longer than a window, unless the clock was set back.
    if (cached > 0 && cached <= windowMs) return cached;
    const left = await read(address);
    if (left > 0) ends.set(address, now() + left);
    return left;
  };
  return {
    blockedFor: async (address) => await cachedOr(address, failures.blockedFor),
    record: async (address) => await cachedOr(address, failures.record),
  };
}

/** For this process alone, while Redis is unavailable. */
export function localAddressFailures(windowMs: number, now: () => number): AddressFailures {
  const windows = createLruCache<string, { readonly startedAt: number; failures: number }>(MAX_ADDRESSES);
  const current = (address: string) => {
    const window = windows.get(address);
    return window !== undefined && Math.abs(now() - window.startedAt) < windowMs
      ? window
      : { startedAt: now(), failures: 0 };
  };
  const blocked = ({ startedAt, failures }: ReturnType<typeof current>): number =>
    failures >= MAX_FAILURES ? Math.min(startedAt + windowMs - now(), windowMs) : 0;
  return {
    blockedFor: async (address) => blocked(current(address)),
    async record(address) {
      const window = current(address);
      const left = blocked(window);
      if (left > 0) return left;
      window.failures += 1;
      windows.set(address, window);
      return 0;
    },
  };
}
