import { z } from 'zod';

import { defineScript } from '../../infra/redis/client.ts';
import type { Counters } from '../../infra/redis/client.ts';
import { hashSecret } from '../auth/api-key.ts';
import { sleep } from '../../infra/lifecycle.ts';
import { pollUntil } from '../../infra/retry.ts';
import { throttled, unavailable } from '../http/errors.ts';
import type { HttpError } from '../http/errors.ts';
import { FAILURE_WINDOW } from './failure-window.ts';

/** Limits failed log-ins, shared by all processes through Redis; without Redis every log-in is rejected. */
export interface LoginAttempts {
  /**
   * Begins an attempt that counts for each of these names (user, address); throws 429 when one of them failed too often,
   * 503 while Redis is unavailable or too many wait. Attempts in progress might all fail, so no more of them run than may
   * still fail, and further ones wait. So concurrent guesses cannot exceed the limit, and concurrent correct log-ins are not
   * rejected for others that may fail. `end` must follow.
   */
  begin(names: readonly string[]): Promise<{ end(isFailure: boolean): Promise<void> }>;
}

/** Window of failed log-ins. A user's limit counts all addresses, so that an attacker gains nothing from many. */
const LOGIN_WINDOW_MS = 60_000;
export const MAX_FAILED = { user: 10, address: 30 };
const limitOf = (name: string): number => MAX_FAILED[name.startsWith('ip:') ? 'address' : 'user'];

/** An attempt that was never ended (its process died) expires. Longer than any attempt. */
const ATTEMPT_TTL_MS = 30_000;

/** Interval of checking for attempts of other processes to end. */
const POLL_MS = 25;

/** Longest wait of an attempt for others to end. */
const WAIT_MS = 15_000;

/** Attempts of a name that wait in this process; further ones are rejected at once. */
export const MAX_WAITING = 100;

/**
 * KEYS: for each name its failures and its attempts in progress; ARGV: now (ms), window (ms), attempt, attempt TTL (ms),
 * and the limit of each name. Returns the milliseconds until a full window ends, -1 while as many attempts are in
 * progress as may fail, or 0 when the attempt has begun.
 */
const beginScript = defineScript(`${FAILURE_WINDOW}
local now, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local isBusy = false
for i = 1, #KEYS, 2 do
  local limit = tonumber(ARGV[4 + (i + 1) / 2])
  local failures, left = failuresOf(KEYS[i], now, window)
  if failures >= limit then return left end
  redis.call('ZREMRANGEBYSCORE', KEYS[i + 1], '-inf', now)
  if failures + redis.call('ZCARD', KEYS[i + 1]) >= limit then isBusy = true end
end
if isBusy then return -1 end
for i = 2, #KEYS, 2 do
  redis.call('ZADD', KEYS[i], now + tonumber(ARGV[4]), ARGV[3])
  redis.call('PEXPIRE', KEYS[i], ARGV[4])
end
return 0`);

/** KEYS: the same; ARGV: now (ms), window (ms), attempt, whether it failed. */
const endScript = defineScript(`${FAILURE_WINDOW}
for i = 1, #KEYS, 2 do
  redis.call('ZREM', KEYS[i + 1], ARGV[3])
  if ARGV[4] == '1' then countFailure(KEYS[i], tonumber(ARGV[1]), tonumber(ARGV[2])) end
end`);

interface Line {
  inProgress: number;
  /** Aborted when one of those in progress ends. */
  ended: AbortController;
}

/** Attempts of this process by name; those beyond the limit wait here and do not ask Redis. */
function createPlaces(): {
  /** @throws 503 at the deadline (on the clock of `performance.now()`), or if too many wait */
  enter(names: readonly string[], deadline: number): Promise<void>;
  leave(names: readonly string[]): void;
} {
  const lines = new Map<string, Line>();
  const waiting = new Map<string, number>();
  const countWaiting = (names: readonly string[], change: 1 | -1): void => {
    for (const name of names) {
      const count = (waiting.get(name) ?? 0) + change;
      if (count === 0) waiting.delete(name);
      else waiting.set(name, count);
    }
  };
  const fullLine = (names: readonly string[]): Line | undefined => {
    const full = names.find((name) => (lines.get(name)?.inProgress ?? 0) >= limitOf(name));
    return full === undefined ? undefined : lines.get(full);
  };
  return {
    async enter(names, deadline) {
      for (let line = fullLine(names); line !== undefined; line = fullLine(names)) {
        const leftMs = deadline - performance.now();
        const isCrowded = names.some((name) => (waiting.get(name) ?? 0) >= MAX_WAITING);
        if (isCrowded || leftMs <= 0) throw tooManyInProgress();
        countWaiting(names, 1);
        await sleep(leftMs, line.ended.signal);
        countWaiting(names, -1);
      }
      for (const name of names) {
        const line = lines.get(name) ?? { inProgress: 0, ended: new AbortController() };
        lines.set(name, line);
        line.inProgress += 1;
      }
    },
    leave(names) {
      for (const name of names) {
        const line = lines.get(name);
        if (line === undefined) continue;
        line.inProgress -= 1;
        if (line.inProgress === 0) lines.delete(name);
        line.ended.abort();
        line.ended = new AbortController();
      }
    },
  };
}

const tooManyInProgress = (): HttpError => unavailable('unavailable', 'Too many log-ins are in progress.', 1);

export function createLoginAttempts(options: {
  readonly counters: Counters;
  readonly now: () => number;
  readonly uniqueId: () => string;
}): LoginAttempts {
  const { counters, now, uniqueId } = options;
  const places = createPlaces();

  return {
    async begin(names) {
      const deadline = performance.now() + WAIT_MS;
      await places.enter(names, deadline);
      // Hashed, as users sometimes type their password as the name.
      const keys = names.map(hashSecret).flatMap((hash) => [`login:${hash}`, `login-held:${hash}`]);
      const attempt = uniqueId();
      const limits = names.map(limitOf);
      const tryToBegin = async (): Promise<number | null> => {
        const args = [now(), LOGIN_WINDOW_MS, attempt, ATTEMPT_TTL_MS, ...limits];
        const answer = z.int().parse(await counters.run(beginScript, keys, args));
        return answer === -1 ? null : answer;
      };
      let hasBegun = false;
      try {
        const wait = await pollUntil(tryToBegin, (found) => found !== null, {
          everyMs: POLL_MS,
          withinMs: deadline - performance.now(),
        });
        if (wait === null) throw tooManyInProgress();
        if (wait > 0) throw throttled(wait / 1000);
        hasBegun = true;
      } finally {
        if (!hasBegun) places.leave(names);
      }
      return {
        async end(isFailure) {
          try {
            await counters.run(endScript, keys, [now(), LOGIN_WINDOW_MS, attempt, isFailure ? 1 : 0]);
          } catch {
            // Lost with the other counters of an unavailable Redis; no log-in begins until it is back.
          } finally {
            places.leave(names);
          }
        },
      };
    },
  };
}
