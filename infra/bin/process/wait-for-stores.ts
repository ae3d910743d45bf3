import { AppError } from '../../../schemas/errors.ts';
import { pause } from '../../lifecycle.ts';
import type { Logger } from '../../log.ts';
import { reasonOf } from './error-text.ts';

const SAID_EVERY = 10;

/**
 * Tries until it succeeds, and says what it waits for: at start the stores may still be starting. Errors that another
 * try cannot mend end the wait.
 */
export async function waitFor<T>(
  what: string | (() => Promise<string>),
  attempt: () => Promise<T>,
  {
    log,
    signal,
    isTransient,
  }: { log: Logger; signal: AbortSignal; isTransient: (error: unknown) => boolean },
): Promise<T> {
  let name = '';
  for (let tries = 0; ; tries += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (signal.aborted || !isTransient(error)) throw error;
      if (tries % SAID_EVERY === 0) {
        // To find out may take a while.
        name = typeof what === 'string' ? what : await what();
        log.warn({ reason: reasonOf(error) }, `waiting for ${name}`);
      }
      await pause(Math.min(2000, 100 * 2 ** Math.min(tries, 5)), signal);
      if (signal.aborted)
        throw new AppError('STORE_UNAVAILABLE', `stopped while waiting for ${name}`, { cause: error });
    }
  }
}
