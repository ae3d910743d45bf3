import type { RetryWhileUnavailable } from '../../infra/retry-while-unavailable.ts';

/** Repeats `iterate` until stopped, retried while a store is unavailable; any other error ends the loop. */
export function startLoop(
  iterate: (signal: AbortSignal) => Promise<void>,
  retryWhileUnavailable: RetryWhileUnavailable,
  onFatal: (error: unknown) => void,
): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const looping = (async () => {
    while (!stopping.signal.aborted) await retryWhileUnavailable(() => iterate(stopping.signal));
  })().catch((error: unknown) => {
    if (!stopping.signal.aborted) onFatal(error);
  });
  return {
    async stop() {
      stopping.abort();
      await looping;
    },
  };
}
