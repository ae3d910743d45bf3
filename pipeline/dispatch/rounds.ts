import type { RetryWhileUnavailable } from '../../infra/retry-while-unavailable.ts';

/** Runs `round` repeatedly until stopped; a non-retryable error ends the loop and is passed to `onFatal`. */
export function startRounds(
  round: (signal: AbortSignal) => Promise<void>,
  retryWhileUnavailable: RetryWhileUnavailable,
  onFatal: (error: unknown) => void,
): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const looping = (async () => {
    while (!stopping.signal.aborted) await retryWhileUnavailable(() => round(stopping.signal));
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
