import { randomUUID } from 'node:crypto';

import { Counter, Gauge } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';
import type { Counters } from '../../infra/redis/client.ts';
import { isRetryable } from '../../schemas/errors.ts';
import { localAddressFailures, cacheBlocks, sharedAddressFailures } from './address-failures.ts';
import type { AddressFailures } from './address-failures.ts';
import { localByteBudgets, sharedByteBudgets } from './byte-budgets.ts';
import type { ByteBudgets } from './byte-budgets.ts';
import { localCallRates, sharedCallRates } from './call-rates.ts';
import type { CallRates } from './call-rates.ts';
import { localCeilings, sharedCeilings } from './ceilings.ts';
import type { Ceilings } from './ceilings.ts';
import { createLoginAttempts } from './login-attempts.ts';
import type { LoginAttempts } from './login-attempts.ts';

/**
 * All limits on callers. The counters are in Redis, shared by all API processes. While Redis is unavailable each process
 * counts for itself and allows a quarter of each ceiling, rate and budget, so that four processes behind a balancer allow about
 * the limit; log-ins are rejected.
 */
export interface Limits {
  readonly ceilings: Ceilings;
  readonly addressFailures: AddressFailures;
  readonly callRates: CallRates;
  readonly byteBudgets: ByteBudgets;
  readonly logins: LoginAttempts;
  /** False while Redis is unavailable. */
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
  const localDecisions = registerMetrics(counters, metrics);
  /** Decides through Redis, or by this process alone while Redis is unavailable. */
  const withFallback =
    <A extends unknown[], T>(shared: (...args: A) => Promise<T>, local: (...args: A) => Promise<T>) =>
    async (...args: A): Promise<T> => {
      try {
        return await shared(...args);
      } catch (error) {
        if (!isRetryable(error)) throw error;
        localDecisions.inc();
        return await local(...args);
      }
    };
  const process = randomUUID().slice(0, 13);
  let lastId = 0;
  const uniqueId = (): string => `${process}:${(lastId += 1)}`;

  const ceilings = { shared: sharedCeilings(counters, now, uniqueId), local: localCeilings(now) };
  const rates = { shared: sharedCallRates(counters, now), local: localCallRates(now) };
  const budgets = { shared: sharedByteBudgets(counters), local: localByteBudgets(now) };
  const failures = {
    shared: sharedAddressFailures(counters, ipBlockWindowMs, now),
    local: localAddressFailures(ipBlockWindowMs, now),
  };
  return {
    ceilings: {
      reserve: withFallback(ceilings.shared.reserve, (name, limit) =>
        ceilings.local.reserve(name, localLimit(limit)),
      ),
    },
    callRates: {
      take: withFallback(rates.shared.take, (name, limit) => rates.local.take(name, localLimit(limit))),
    },
    byteBudgets: {
      take: withFallback(budgets.shared.take, (name, bytes, limit) =>
        budgets.local.take(name, bytes, localLimit(limit)),
      ),
    },
    addressFailures: cacheBlocks(
      {
        blockedFor: withFallback(failures.shared.blockedFor, failures.local.blockedFor),
        record: withFallback(failures.shared.record, failures.local.record),
      },
      ipBlockWindowMs,
      now,
    ),
    logins: createLoginAttempts({ counters, now, uniqueId }),
    areShared: () => counters.answers(),
  };
}

function registerMetrics(counters: Counters, registry: Registry): Counter {
  new Gauge({
    name: 'tds_redis_up',
    help: '1 while limits are counted in Redis, 0 while each process counts for itself',
    registers: [registry],
    async collect() {
      this.set((await counters.answers()) ? 1 : 0);
    },
  });
  const localDecisions = new Counter({
    name: 'tds_local_limit_decisions_total',
    help: 'Limit decisions made by this process alone because Redis was unavailable',
    registers: [registry],
  });
  localDecisions.inc(0);
  return localDecisions;
}
