import type { Logger } from '../../log.ts';
import { retry } from '../../retry.ts';
import { shortReason } from './error-text.ts';

/** A warning is logged at the first failure and at every tenth after it. */
const LOG_EVERY = 10;

/**
 * Retries `work` while a store is unavailable, as stores may still be starting, and logs what it waits for. Throws every
 * other error at once, and the reason of the signal once that is aborted.
 */
export async function retryUntilAvailable<T>(
  what: string | (() => Promise<string>),
  work: () => Promise<T>,
  {
    log,
    signal,
    isTransient,
  }: { log: Logger; signal: AbortSignal; isTransient: (error: unknown) => boolean },
): Promise<T> {
  const attemptOnce = async (attempt: number): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      if (isTransient(error) && !signal.aborted && attempt % LOG_EVERY === 1) {
        // Probing the stores takes seconds, so it happens only when it is logged.
        const name = typeof what === 'string' ? what : await what();
        log.warn({ reason: shortReason(error) }, `waiting for ${name}`);
      }
      throw error;
    }
  };
  return await retry(attemptOnce, { isRetryable: isTransient, signal, maxMs: 2000 });
}
