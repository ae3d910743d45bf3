import { systemClock } from './clock.ts';
import type { Clock } from './clock.ts';
import { sleep } from './lifecycle.ts';
import type { RetryWhileUnavailable } from './retry-while-unavailable.ts';

export interface Loop {
  /** Starts the next round without delay. */
  readonly wake: () => void;
  /** Resolves after the last round. */
  readonly stop: () => Promise<void>;
}

/** Repeats `round` until stopped, never two at a time; an error that is not retried ends the loop. */
export function startLoop({
  round,
  retryWhileUnavailable = (work) => work(),
  onFatal = (error) => {
    throw error;
  },
  clock = systemClock,
}: {
  /** Returns the milliseconds until the next round. */
  readonly round: (signal: AbortSignal) => Promise<number>;
  readonly retryWhileUnavailable?: RetryWhileUnavailable;
  /** Without it, a round must not throw. */
  readonly onFatal?: (error: unknown) => void;
  readonly clock?: Pick<Clock, 'sleep'>;
}): Loop {
  const stopping = new AbortController();
  let delay = new AbortController();
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      delay = new AbortController();
      const delayMs = await retryWhileUnavailable(() => round(stopping.signal));
      await clock.sleep(delayMs, delay.signal);
    }
  };
  const running = run().catch((error: unknown) => {
    if (!stopping.signal.aborted) onFatal(error);
  });
  return {
    // With a reason: without one, an error is made at each call.
    wake: () => delay.abort('woken'),
    async stop() {
      stopping.abort();
      delay.abort();
      await running;
    },
  };
}

/** A round every `pollMs` that rests for as long as its work took, so that many wakes do not keep the process busy. */
export function withRest(
  work: () => Promise<void>,
  pollMs: number,
): (signal: AbortSignal) => Promise<number> {
  return async (signal) => {
    const began = performance.now();
    await work();
    await sleep(performance.now() - began, signal);
    return pollMs;
  };
}
