import { randomUUID } from 'node:crypto';

import { Counter, Gauge } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';
import type { Counters } from '../../infra/redis/client.ts';
import { isRetryable } from '../../schemas/errors.ts';
import { localAddressFailures, rememberBlocks, sharedAddressFailures } from './address-failures.ts';
import type { AddressFailures } from './address-failures.ts';
import type { Allowance } from './allowance.ts';
import { localCallRates, sharedCallRates } from './call-rates.ts';
import type { CallRates } from './call-rates.ts';
import { localCeilings, sharedCeilings } from './ceilings.ts';
import type { Ceilings } from './ceilings.ts';
import { createLoginAttempts } from './login-attempts.ts';
import type { LoginAttempts } from './login-attempts.ts';

/**
 * Everything that is counted of callers. The counters are in Redis, one for all API processes. While Redis is away each
 * process counts for itself, ceilings and rates to a quarter of what they are: several processes behind one address then
 * let through about as much as the limit says, and reads go on. Log-ins wait for Redis.
 */
export interface Limits {
  readonly ceilings: Ceilings;
  readonly addressFailures: AddressFailures;
  readonly callRates: CallRates;
  readonly logins: LoginAttempts;
  /** Asks Redis. */
  areShared(): Promise<boolean>;
}

export interface LimitsDeps {
  readonly counters: Counters;
  readonly ipBlockWindowMs: number;
  readonly metrics: Registry;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const LOCAL_SHARE = 1 / 4;
const localLimit = (limit: number): number => Math.ceil(limit * LOCAL_SHARE);

export function createLimits({ counters, ipBlockWindowMs, metrics, now }: LimitsDeps): Limits {
  const local = new Counter({
    name: 'tds_local_limit_decisions_total',
    help: 'Decisions of limits that this process made alone, because Redis was away',
    registers: [metrics],
  });
  local.inc(0);
  new Gauge({
    name: 'tds_redis_up',
    help: '1 while limits are counted in Redis, 0 while each process counts for itself',
    registers: [metrics],
    async collect() {
      this.set((await counters.answers()) ? 1 : 0);
    },
  });
  const either = async <T>(shared: () => Promise<T>, alone: () => Promise<T>): Promise<T> => {
    try {
      return await shared();
    } catch (error) {
      if (!isRetryable(error)) throw error;
      local.inc();
      return await alone();
    }
  };

  const process = randomUUID().slice(0, 13);
  let made = 0;
  const ids = (): string => `${process}:${(made += 1)}`;

  const ceilings = { shared: sharedCeilings(counters, now, ids), local: localCeilings(now) };
  const rates = { shared: sharedCallRates(counters, now), local: localCallRates(now) };
  const failures = {
    shared: sharedAddressFailures(counters, ipBlockWindowMs, now),
    local: localAddressFailures(ipBlockWindowMs, now),
  };
  return {
    ceilings: {
      reserve: async (name, limit) =>
        await either(
          async () => await ceilings.shared.reserve(name, limit),
          async () => await ceilings.local.reserve(name, localLimit(limit)),
        ),
    },
    callRates: {
      take: async (name, limit): Promise<Allowance> =>
        await either(
          async () => await rates.shared.take(name, limit),
          async () => await rates.local.take(name, localLimit(limit)),
        ),
    },
    addressFailures: rememberBlocks(
      {
        blockedFor: async (address) =>
          await either(
            async () => await failures.shared.blockedFor(address),
            async () => await failures.local.blockedFor(address),
          ),
        record: async (address) =>
          await either(
            async () => await failures.shared.record(address),
            async () => await failures.local.record(address),
          ),
      },
      now,
    ),
    logins: createLoginAttempts({ counters, now, ids }),
    areShared: () => counters.answers(),
  };
}
