import { createCallerQueue } from '../commands/command-queue.ts';
import { invalidInput } from '../http/errors.ts';
import type { RequestInfo } from '../http/route.ts';

/** Why a URL may not be called, as a sentence for the user; null: it may. */
export type CheckUrl = (url: string) => Promise<string | null>;

/** Throws 400 where a URL may not be called. */
export type AssertCallable = (request: Pick<RequestInfo, 'caller' | 'signal'>, url: string) => Promise<void>;

/** One check of a user at a time: the names of one must not keep the resolver from all others. */
const LIMITS = { inFlight: 48, inFlightPerUser: 1, maxWaiting: 100 };
const WAIT_MS = 5000;
/** A check of a slow name ends before its lookup does, which may take the longer time. */
const SLOW_CHECK_MS = 4000;
const LOOKUP_MS = 20_000;

export function createUrlChecks(checkUrl: CheckUrl): AssertCallable {
  const takePlace = createCallerQueue(LIMITS);
  return async ({ caller, signal }, url) => {
    const leave = await takePlace({ caller: caller(), signal, waitMs: WAIT_MS });
    const startedAt = performance.now();
    const fault = await checkUrl(url).finally(() => {
      if (performance.now() - startedAt < SLOW_CHECK_MS) leave();
      else setTimeout(leave, LOOKUP_MS).unref();
    });
    if (fault !== null) throw invalidInput({ url: [fault] });
  };
}
