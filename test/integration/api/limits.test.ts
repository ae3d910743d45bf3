import { randomUUID } from 'node:crypto';

import fc from 'fast-check';
import { Redis } from 'ioredis';
import { pino } from 'pino';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';

import { readClasses } from '../../../api/http/clickhouse.ts';
import {
  cacheBlocks,
  localAddressFailures,
  sharedAddressFailures,
} from '../../../api/limits/address-failures.ts';
import type { AddressFailures } from '../../../api/limits/address-failures.ts';
import { localByteBudgets, sharedByteBudgets } from '../../../api/limits/byte-budgets.ts';
import { localCallRates, sharedCallRates } from '../../../api/limits/call-rates.ts';
import type { CallRates } from '../../../api/limits/call-rates.ts';
import { SLOT_TTL_MS, localCeilings, sharedCeilings } from '../../../api/limits/ceilings.ts';
import type { Ceilings, Slot } from '../../../api/limits/ceilings.ts';
import { createLoginAttempts } from '../../../api/limits/login-attempts.ts';
import type { LoginAttempts } from '../../../api/limits/login-attempts.ts';
import { openCounters } from '../../../infra/redis/client.ts';
import type { Counters } from '../../../infra/redis/client.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';

/** Every limit in Redis, as several processes have it, and as one has it alone; the clock is ours. */

let own: Isolated;
let redis: Redis;
/** As two processes have them. */
let processes: readonly Counters[];
let time = 0;
let name = '';
const now = () => time;
const log = pino({ level: 'silent' });

const connect = async (): Promise<Counters> => {
  const counters = openCounters(own.env.REDIS_URL, { keyPrefix: 'test:', timeoutMs: 20_000, log });
  await counters.settled(20_000);
  return counters;
};

beforeAll(async () => {
  own = await isolated();
  redis = new Redis(own.env.REDIS_URL);
  processes = await Promise.all([connect(), connect()]);
});
afterAll(async () => {
  for (const counters of processes) counters.close();
  redis.disconnect();
  await own.drop();
});
beforeEach(() => {
  time = 1_800_000_000_000;
  name = randomUUID();
});

const ids = (() => {
  let made = 0;
  return () => `t:${(made += 1)}`;
})();
const answering = (answer: number): Counters => ({
  run: async () => answer,
  answers: async () => true,
  settled: async () => {},
  close() {},
});
const all = <T>(make: (counters: Counters) => T): T[] => processes.map((counters) => make(counters));
/** One of several, in turn. */
const turns = <T>(them: readonly T[]): (() => T) => {
  let turn = 0;
  return () => {
    const one = them[(turn += 1) % them.length];
    if (one === undefined) throw new Error('none');
    return one;
  };
};

describe.each(['shared', 'local'])('a ceiling, %s', (kind) => {
  let next: () => Ceilings;
  beforeEach(() => {
    next = turns(
      kind === 'local' ? [localCeilings(now)] : all((counters) => sharedCeilings(counters, now, ids)),
    );
  });
  const call = async (limit: number, isSuccess = true): Promise<Slot> => {
    const slot = await next().reserve(name, limit);
    await slot.end(isSuccess);
    return slot;
  };

  it('lets that many calls succeed in an hour, and reports when the next one may', async () => {
    expect((await call(3)).remaining).toBe(2);
    time += 1_000_000;
    expect((await call(3)).remaining).toBe(1);
    expect((await call(3)).remaining).toBe(0);
    const refused = await call(3);
    expect([refused.isAllowed, refused.remaining]).toEqual([false, 0]);
    time += refused.resetMs - 1001;
    expect((await call(3)).isAllowed).toBe(false);
    time += 1001;
    expect((await call(3)).isAllowed).toBe(true);
    expect((await call(3)).isAllowed).toBe(false);
  });

  it('spans an hour, to the second', async () => {
    await call(1);
    time += 3_599_999;
    expect((await call(1)).isAllowed).toBe(false);
    time += 1001;
    expect((await call(1)).isAllowed).toBe(true);
  });

  it('counts a success for another hour at most after the clock was set back, and not at all if by more than that', async () => {
    await call(1);
    time -= 1000;
    const refused = await call(1);
    expect(refused.isAllowed).toBe(false);
    expect(refused.resetMs).toBeLessThanOrEqual(3_602_000);
    time -= 3_600_000;
    expect((await call(1)).isAllowed).toBe(true);
    expect((await call(1)).isAllowed).toBe(false);
    time += 3_601_000;
    expect((await call(1)).isAllowed).toBe(true);
  });

  it('counts no failures', async () => {
    for (let i = 0; i < 5; i += 1) expect((await call(1, false)).isAllowed).toBe(true);
    await call(1);
    expect((await call(1)).isAllowed).toBe(false);
  });

  it('holds a slot for a call that is under way', async () => {
    const first = await next().reserve(name, 1);
    expect((await next().reserve(name, 1)).isAllowed).toBe(false);
    await first.end(false);
    expect((await next().reserve(name, 1)).isAllowed).toBe(true);
  });

  it('names, to a call rejected because of running ones, the time of the next one if they succeed', async () => {
    const running = await Promise.all([next().reserve(name, 2), next().reserve(name, 2)]);
    const refused = await next().reserve(name, 2);
    expect([refused.isAllowed, refused.remaining]).toEqual([false, 0]);
    for (const slot of running) await slot.end(true);
    time += refused.resetMs - 1001;
    expect((await call(2)).isAllowed).toBe(false);
    time += 1001;
    expect((await call(2)).isAllowed).toBe(true);
  });

  it('is not exceeded by fifty concurrent calls', async () => {
    const slots = await Promise.all(Array.from({ length: 50 }, async () => await call(20)));
    expect(slots.filter(({ isAllowed }) => isAllowed)).toHaveLength(20);
  });

  it('keeps the counts of different names apart', async () => {
    await call(1);
    const other = await next().reserve(`${name} too`, 1);
    expect(other.isAllowed).toBe(true);
  });
});

describe('a shared ceiling', () => {
  it('holds the slot of an export that takes as long as it may to begin', async () => {
    const [one, two] = all((counters) => sharedCeilings(counters, now, ids));
    expect((await one?.reserve(name, 1))?.isAllowed).toBe(true);
    time += readClasses.export.waitMs + readClasses.export.readMs;
    expect((await two?.reserve(name, 1))?.isAllowed).toBe(false);
  });

  it('frees the slot of a dead process in the end', async () => {
    const [one, two] = all((counters) => sharedCeilings(counters, now, ids));
    expect((await one?.reserve(name, 1))?.isAllowed).toBe(true);
    time += SLOT_TTL_MS - 1;
    expect((await two?.reserve(name, 1))?.isAllowed).toBe(false);
    time += 1;
    expect((await two?.reserve(name, 1))?.isAllowed).toBe(true);
  });

  it('equals a plain list of successes under any calls, ends and clock skew', async () => {
    const step = fc.oneof(
      { weight: 6, arbitrary: fc.record({ do: fc.constant('call' as const), ok: fc.boolean() }) },
      { weight: 2, arbitrary: fc.record({ do: fc.constant('hold' as const) }) },
      { weight: 2, arbitrary: fc.record({ do: fc.constant('end' as const), ok: fc.boolean() }) },
      {
        weight: 3,
        arbitrary: fc.record({
          do: fc.constant('pass' as const),
          ms: fc.integer({ min: 1, max: 2_400_000 }),
        }),
      },
      { weight: 1, arbitrary: fc.record({ do: fc.constant('lag' as const), ms: fc.nat(3000) }) },
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 100, size: 'max' }),
        fc.integer({ min: 1, max: 6 }),
        async (steps, limit) => {
          const key = randomUUID();
          time = 1_800_000_000_000;
          let lag = 0;
          // A success of a clock that lags is counted from the newest one before it.
          let mostLag = 0;
          const [fast, slow] = processes.map((counters, i) =>
            sharedCeilings(counters, () => time - (i === 0 ? 0 : lag), ids),
          );
          if (fast === undefined || slow === undefined) throw new Error('none');
          let done: number[] = [];
          let held: { slot: Slot; at: number; late: boolean }[] = [];
          let turn = 0;
          for (const each of steps) {
            const isSlow = (turn += 1) % 2 === 0;
            const clock = (late: boolean): number => time - (late ? lag : 0);
            if (each.do === 'pass') time += each.ms;
            if (each.do === 'lag') lag = each.ms;
            mostLag = Math.max(mostLag, lag);
            if (each.do === 'end') {
              const one = held.shift();
              await one?.slot.end(each.ok);
              if (one !== undefined && each.ok) done.push(clock(one.late));
            }
            if (each.do !== 'call' && each.do !== 'hold') continue;
            // What is certainly still counted, and what is certainly counted no more.
            const at = clock(isSlow);
            done = done.filter((when) => time - lag - when < 3_610_000);
            const must = done.filter((when) => at - when < 3_600_000 - mostLag).length;
            const may = done.filter((when) => at - when < 3_601_000 + mostLag).length;
            held = held.filter((one) => at - one.at < SLOT_TTL_MS + mostLag);
            const mustHold = held.filter((one) => at - one.at < SLOT_TTL_MS - mostLag).length;
            const slot = await (isSlow ? slow : fast).reserve(key, limit);
            if (slot.isAllowed) expect(must + mustHold).toBeLessThan(limit);
            else expect(may + held.length).toBeGreaterThanOrEqual(limit);
            if (!slot.isAllowed) continue;
            if (each.do === 'hold') held.push({ slot, at, late: isSlow });
            else {
              await slot.end(each.ok);
              if (each.ok) done.push(at);
            }
          }
        },
      ),
      { numRuns: 100 },
    );
  });

  it('continues when Redis loses the scripts', async () => {
    const [one] = all((counters) => sharedCeilings(counters, now, ids));
    await (await one?.reserve(name, 2))?.end(true);
    await redis.script('FLUSH');
    expect((await one?.reserve(name, 2))?.remaining).toBe(0);
  });

  it('is kept by Redis for an hour and a second after the last success', async () => {
    const [one] = all((counters) => sharedCeilings(counters, now, ids));
    const [seconds] = await redis.time();
    await (await one?.reserve(name, 1))?.end(true);
    expect(await redis.pexpiretime(`test:ceiling:${name}`)).toBeGreaterThanOrEqual(
      Number(seconds) * 1000 + 3_601_000,
    );
  });

  it('uses little memory for a high ceiling', async () => {
    const [one] = all((counters) => sharedCeilings(counters, now, ids));
    for (let i = 0; i < 2000; i += 1) {
      time += 20;
      const slot = await one?.reserve(name, 1_000_000);
      await slot?.end(true);
    }
    expect((await one?.reserve(name, 1_000_000))?.remaining).toBe(1_000_000 - 2001);
    expect((await one?.reserve(name, 2001))?.isAllowed).toBe(false);
  });
});

describe.each(['shared', 'local'])('failures of an address, %s', (kind) => {
  const WINDOW = 300_000;
  let next: () => AddressFailures;
  beforeEach(() => {
    next = turns(
      kind === 'local'
        ? [localAddressFailures(WINDOW, now)]
        : all((counters) => sharedAddressFailures(counters, WINDOW, now)),
    );
  });

  it('block it after ten, for five minutes from the first one, to the millisecond', async () => {
    for (let i = 0; i < 9; i += 1) {
      expect(await next().record(name)).toBe(0);
      time += 10_000;
      expect(await next().blockedFor(name)).toBe(0);
    }
    expect(await next().record(name)).toBe(0);
    expect(await next().blockedFor(name)).toBe(WINDOW - 90_000);
    // What is refused for that does not prolong it.
    expect(await next().record(name)).toBe(WINDOW - 90_000);
    time += WINDOW - 90_001;
    expect(await next().blockedFor(name)).toBe(1);
    time += 1;
    expect(await next().blockedFor(name)).toBe(0);
    for (let i = 0; i < 10; i += 1) expect(await next().record(name)).toBe(0);
    expect(await next().record(name)).toBe(WINDOW);
  });

  it('are forgotten when the window ends before the tenth', async () => {
    for (let i = 0; i < 9; i += 1) await next().record(name);
    time += WINDOW;
    expect(await next().record(name)).toBe(0);
    expect(await next().blockedFor(name)).toBe(0);
  });

  it('block it for a window at most after the clock was set back, and not at all if by more than that', async () => {
    for (let i = 0; i < 10; i += 1) await next().record(name);
    time -= 2;
    expect(await next().blockedFor(name)).toBe(WINDOW);
    time -= WINDOW;
    expect(await next().blockedFor(name)).toBe(0);
    for (let i = 0; i < 10; i += 1) expect(await next().record(name)).toBe(0);
    expect(await next().record(name)).toBe(WINDOW);
  });

  it('are counted up to exactly ten when fifty come concurrently', async () => {
    const answers = await Promise.all(Array.from({ length: 50 }, async () => await next().record(name)));
    expect(answers.filter((ms) => ms === 0)).toHaveLength(10);
    expect(await next().blockedFor(`${name} too`)).toBe(0);
  });
});

describe('a block of an address', () => {
  it('is cached until it ends', async () => {
    const lengths = [5000];
    const blockedFor = async (): Promise<number> => lengths.shift() ?? 0;
    const failures = cacheBlocks({ blockedFor, record: blockedFor }, 300_000, now);
    expect(await failures.blockedFor(name)).toBe(5000);
    time += 4999;
    expect([await failures.blockedFor(name), await failures.record(name)]).toEqual([1, 1]);
    expect(await failures.blockedFor(`${name} too`)).toBe(0);
    time += 1;
    expect([await failures.blockedFor(name), await failures.record(name)]).toEqual([0, 0]);
  });

  it('is read again where it would last longer than a window, as after the clock was set back', async () => {
    const lengths = [300_000, 0];
    const blockedFor = async (): Promise<number> => lengths.shift() ?? 1;
    const failures = cacheBlocks({ blockedFor, record: blockedFor }, 300_000, now);
    expect([await failures.blockedFor(name), await failures.blockedFor(name)]).toEqual([300_000, 300_000]);
    time -= 3_600_000;
    expect(await failures.blockedFor(name)).toBe(0);
  });
});

describe.each(['shared', 'local'])('calls a minute, %s', (kind) => {
  let next: () => CallRates;
  beforeEach(() => {
    next = turns(
      kind === 'local' ? [localCallRates(now)] : all((counters) => sharedCallRates(counters, now)),
    );
  });

  it('are limited in any minute; a rejected one does not count', async () => {
    const start = time;
    const take = async (at: number) => {
      time = start + at;
      const { isAllowed, remaining, resetMs } = await next().take(name, 3);
      return [isAllowed, remaining, resetMs];
    };
    expect(await take(0)).toEqual([true, 2, 60_000]);
    expect(await take(10_000)).toEqual([true, 1, 50_000]);
    expect(await take(20_000)).toEqual([true, 0, 40_000]);
    for (let i = 0; i < 20; i += 1) expect(await take(59_999)).toEqual([false, 0, 1]);
    expect((await next().take(`${name} too`, 3)).isAllowed).toBe(true);
    expect(await take(60_000)).toEqual([true, 0, 10_000]);
    expect(await take(60_000)).toEqual([false, 0, 10_000]);
  });

  it('are limited for another minute at most after the clock was set back, and not at all if by more than that', async () => {
    const take = async () => await next().take(name, 1);
    expect((await take()).isAllowed).toBe(true);
    time -= 1000;
    expect(await take()).toMatchObject({ isAllowed: false, resetMs: 61_000 });
    time -= 60_000;
    expect(await take()).toMatchObject({ isAllowed: true, resetMs: 60_000 });
    expect((await take()).isAllowed).toBe(false);
  });

  it('are not exceeded by fifty concurrent calls', async () => {
    const taken = await Promise.all(Array.from({ length: 50 }, async () => await next().take(name, 30)));
    expect(taken.filter(({ isAllowed }) => isAllowed)).toHaveLength(30);
  });
});

describe.each(['shared', 'local'])('bytes in an hour, %s', (kind) => {
  it('are limited, also of concurrent calls; rejected ones do not count', async () => {
    const next = turns(kind === 'local' ? [localByteBudgets(now)] : all(sharedByteBudgets));
    const taken = await Promise.all(
      Array.from({ length: 50 }, async () => await next().take(name, 30, 1000)),
    );
    expect(taken.filter((waitMs) => waitMs === 0)).toHaveLength(33);
    const waits = new Set([...taken, await next().take(name, 11, 1000)].filter((waitMs) => waitMs > 0));
    for (const waitMs of waits) {
      expect(waitMs).toBeGreaterThan(3_500_000);
      expect(waitMs).toBeLessThanOrEqual(3_600_000);
    }
    expect(await next().take(name, 10, 1000)).toBe(0);
    expect(await next().take(name, 1, 1000)).toBeGreaterThan(0);
    expect(await next().take(`${name} too`, 1000, 1000)).toBe(0);
  });
});

describe('an hour of bytes', () => {
  it('begins with the first of them, in Redis', async () => {
    const [one] = all(sharedByteBudgets);
    const key = `test:bytes:${name}`;
    await one?.take(name, 1, 1000);
    await redis.pexpire(key, 1_000_000);
    const end = await redis.pexpiretime(key);
    await one?.take(name, 1, 1000);
    expect(await redis.pexpiretime(key)).toBe(end);
  });

  it('is followed by another one, in this process', async () => {
    const budgets = localByteBudgets(now);
    for (let hour = 0; hour < 2; hour += 1) {
      expect(await budgets.take(name, 1000, 1000)).toBe(0);
      time += 3_599_999;
      expect(await budgets.take(name, 1, 1000)).toBe(1);
      time += 1;
    }
  });
});

describe('log-ins', () => {
  let next: () => LoginAttempts;
  beforeEach(() => {
    next = turns(all((counters) => createLoginAttempts({ counters, now, uniqueId: ids })));
  });
  const fail = async (names: readonly string[]): Promise<string | null> => {
    try {
      const attempt = await next().begin(names);
      await attempt.end(true);
      return null;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  };

  it('are limited to ten failures for a user and thirty for an address, for a minute from the first', async () => {
    const user = `user:${name}`;
    for (let i = 0; i < 10; i += 1) {
      expect(await fail([`ip:${name}-${i}`, user])).toBeNull();
      time += 1000;
    }
    expect(await fail([`ip:${name}-x`, user])).toContain('available in 50 seconds');
    time += 49_999;
    expect(await fail([`ip:${name}-x`, user])).toContain('available in 1 second.');
    time += 1;
    expect(await fail([`ip:${name}-x`, user])).toBeNull();

    const ip = `ip:${name}`;
    for (let i = 0; i < 30; i += 1) expect(await fail([ip, `user:${name}-${i}`])).toBeNull();
    expect(await fail([ip, `user:${name}-x`])).toContain('throttled');
    // A refused attempt counts for none of its names.
    for (let i = 0; i < 10; i += 1) expect(await fail([`ip:${name}-z`, `user:${name}-x`])).toBeNull();
  });

  it('are limited for a minute at most after the clock was set back, and not at all if by more than that', async () => {
    const user = `user:${name}`;
    for (let i = 0; i < 10; i += 1) expect(await fail([`ip:${name}`, user])).toBeNull();
    time -= 1000;
    expect(await fail([`ip:${name}`, user])).toContain('available in 60 seconds');
    time -= 60_000;
    for (let i = 0; i < 10; i += 1) expect(await fail([`ip:${name}`, user])).toBeNull();
    expect(await fail([`ip:${name}`, user])).toContain('available in 60 seconds');
  });

  it('are limited in each minute that begins with a failure', async () => {
    for (let minute = 0; minute < 2; minute += 1) {
      for (let i = 0; i < 10; i += 1) expect(await fail([`user:${name}`])).toBeNull();
      expect(await fail([`user:${name}`])).toContain('available in 60 seconds');
      time += 60_000;
    }
  });

  it('that succeed are not counted, sequential or concurrent', async () => {
    const right = async (): Promise<void> => {
      const attempt = await next().begin([`user:${name}`]);
      await attempt.end(false);
    };
    for (let i = 0; i < 15; i += 1) await right();
    await Promise.all(Array.from({ length: 60 }, right));
  });

  it('run concurrently at most as many as may still fail, across all processes', async () => {
    let running = 0;
    let most = 0;
    const guess = async (): Promise<boolean> => {
      const attempt = await next()
        .begin([`user:${name}`])
        .catch(() => null);
      if (attempt === null) return false;
      most = Math.max(most, (running += 1));
      await new Promise((resolve) => setTimeout(resolve, 5));
      running -= 1;
      await attempt.end(true);
      return true;
    };
    const guesses = await Promise.all(Array.from({ length: 40 }, guess));
    expect(guesses.filter((ran) => ran)).toHaveLength(10);
    expect(most).toBeLessThanOrEqual(10);
  });

  it('wait a hundred of a name at a time, for 15 s; others are rejected at once', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    try {
      const logins = createLoginAttempts({ counters: answering(0), now, uniqueId: ids });
      const begun: { end(isFailure: boolean): Promise<void> }[] = [];
      const refused: unknown[] = [];
      const begin = (user: string): void =>
        void logins.begin(['ip:1', user]).then(
          (attempt) => begun.push(attempt),
          (error: unknown) => refused.push(error),
        );
      for (let i = 0; i < 111; i += 1) begin('user:1');
      // A hundred of the address wait, though none of the other user.
      for (let i = 0; i < 11; i += 1) begin('user:2');
      await vi.advanceTimersByTimeAsync(0);
      const overloaded = expect.objectContaining({ status: 503, headers: { 'Retry-After': '1' } });
      expect([begun.length, refused]).toEqual([20, [overloaded, overloaded]]);
      await begun[0]?.end(false);
      await vi.advanceTimersByTimeAsync(0);
      expect([begun.length, refused.length]).toEqual([21, 2]);
      await vi.advanceTimersByTimeAsync(14_999);
      expect(refused).toHaveLength(2);
      await vi.advanceTimersByTimeAsync(1);
      expect([begun.length, refused]).toEqual([21, Array(101).fill(overloaded)]);
    } finally {
      vi.useRealTimers();
    }
  });

  it('do not wait for ever for a process that died', async () => {
    const [one] = all((counters) => createLoginAttempts({ counters, now, uniqueId: ids }));
    await Promise.all(Array.from({ length: 10 }, async () => await one?.begin([`user:${name}`])));
    time += 30_000;
    const [, two] = all((counters) => createLoginAttempts({ counters, now, uniqueId: ids }));
    await expect(two?.begin([`user:${name}`])).resolves.toHaveProperty('end');
  });
});
