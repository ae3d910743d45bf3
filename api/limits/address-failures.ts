import { z } from 'zod';

import { defineScript } from '../../infra/redis/client.ts';
import type { Counters } from '../../infra/redis/client.ts';

/**
 * Failed key checks by address. The window of an address begins with its first failure; after ten in it, the address is
 * blocked until the window ends. What is refused because of that counts no more.
 */
export interface AddressFailures {
  /** Milliseconds for which the address is blocked still; 0 when it is not. */
  blockedFor(address: string): Promise<number>;
  /** Counts a failure, unless the address was blocked by ten before this one: then as `blockedFor`. */
  record(address: string): Promise<number>;
}

export const FAILURES = 10;

/** KEYS: the address; ARGV: now (ms), window (ms), failures, whether to count one. */
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

/** For all processes that share a Redis. */
export function sharedAddressFailures(
  counters: Counters,
  windowMs: number,
  now: () => number,
): AddressFailures {
  const run = async (address: string, isFailure: 0 | 1): Promise<number> =>
    z
      .int()
      .parse(
        await counters.run(failuresScript, [`failures:${address}`], [now(), windowMs, FAILURES, isFailure]),
      );
  return {
    blockedFor: async (address) => await run(address, 0),
    record: async (address) => await run(address, 1),
  };
}

/** Addresses held at once by this process; the one that was heard of first goes first. */
const ADDRESSES = 50_000;

/**
 * What is once known to be blocked stays so until its window ends: this process asks no more about it, and knows it still
 * when Redis goes away.
 */
export function rememberBlocks(failures: AddressFailures, now: () => number): AddressFailures {
  const ends = new Map<string, number>();
  const remember = (address: string, left: number): number => {
    if (left <= 0) return 0;
    ends.delete(address);
    ends.set(address, now() + left);
    makeRoom(ends);
    return left;
  };
  const known = (address: string): number => (ends.get(address) ?? 0) - now();
  return {
    async blockedFor(address) {
      const left = known(address);
      if (left > 0) return left;
      ends.delete(address);
      return remember(address, await failures.blockedFor(address));
    },
    async record(address) {
      const left = known(address);
      return left > 0 ? left : remember(address, await failures.record(address));
    },
  };
}

/** In this process alone, while the shared ones cannot be had. */
export function localAddressFailures(windowMs: number, now: () => number): AddressFailures {
  const windows = new Map<string, { readonly began: number; failures: number }>();
  const current = (address: string) => {
    const window = windows.get(address);
    return window !== undefined && now() - window.began < windowMs ? window : undefined;
  };
  const blocked = (address: string): number => {
    const window = current(address);
    return window !== undefined && window.failures >= FAILURES ? window.began + windowMs - now() : 0;
  };
  return {
    blockedFor: async (address) => blocked(address),
    async record(address) {
      const left = blocked(address);
      if (left > 0) return left;
      const window = current(address) ?? { began: now(), failures: 0 };
      window.failures += 1;
      windows.delete(address);
      windows.set(address, window);
      makeRoom(windows);
      return 0;
    },
  };
}

function makeRoom(held: Map<string, unknown>): void {
  for (const oldest of held.keys()) {
    if (held.size <= ADDRESSES) return;
    held.delete(oldest);
  }
}
