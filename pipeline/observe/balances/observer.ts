import type { Config } from '../../../infra/config.ts';
import { topics } from '../../../schemas/topics.ts';
import { readRequests, startObserver } from '../observer.ts';
import type { ObserverOptions, ObserverRun } from '../observer.ts';
import { startBalanceReader } from './reader.ts';
import type { BalanceReaderOptions } from './reader.ts';

export interface BalanceObserverOptions
  extends ObserverOptions, Omit<BalanceReaderOptions, 'callsPerSecond'> {
  readonly config: Pick<Config, 'observerCallsPerSecond'>;
}

const OBSERVER = 'balances';

/** Publishes `balance.observed` for requested pairs of account and token, read at the newest indexed block. */
export async function runBalanceObserver(options: BalanceObserverOptions): Promise<ObserverRun> {
  return await startObserver(OBSERVER, { pollMs: 250, ...options }, async (observer) => {
    const callsPerSecond = options.config.observerCallsPerSecond;
    const reader = startBalanceReader(observer, { ...options, callsPerSecond });
    await observer.consume([topics.requests], async (batch) => {
      for (const { account, token, caller, requested_at: requestedAt } of readRequests(
        observer,
        batch,
        'balance.requested',
      ))
        reader.request({ account, token, caller, requestedAt });
      reader.wake();
    });
  });
}
