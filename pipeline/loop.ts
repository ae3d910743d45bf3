import { systemClock } from '../infra/clock.ts';
import type { Clock } from '../infra/clock.ts';
import type { RetryWhileUnavailable } from '../infra/retry-while-unavailable.ts';

export interface Loop {
  /** Starts the next round without delay. */
  wake(): void;
  /** Resolves after the last round. */
  stop(): Promise<void>;
}

/** Repeats `round` until stopped, retried while a store is unavailable; any other error ends the loop. */
export function startLoop({
  round,
  retryWhileUnavailable,
  onFatal,
  clock = systemClock,
}: {
  /** Returns the milliseconds until the next round. */
  readonly round: (signal: AbortSignal) => Promise<number>;
  readonly retryWhileUnavailable: RetryWhileUnavailable;
  readonly onFatal: (error: unknown) => void;
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
    wake: () => delay.abort('woken'),
    async stop() {
      stopping.abort();
      delay.abort();
      await running;
    },
  };
}
