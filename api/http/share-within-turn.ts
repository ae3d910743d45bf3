import { setImmediate as endOfTurn } from 'node:timers/promises';

/**
 * Shares a call between all callers with the same arguments within one turn of the event loop. It begins at the end of the turn,
 * so no caller gets a result that was read before its call.
 */
export function shareWithinTurn<A extends readonly string[], T>(
  work: (...args: A) => Promise<T>,
): (...args: A) => Promise<T> {
  const upcoming = new Map<string, Promise<T>>();
  return async (...args) => {
    const key = args.join('\0');
    const shared =
      upcoming.get(key) ??
      endOfTurn().then(async () => {
        upcoming.delete(key);
        return await work(...args);
      });
    upcoming.set(key, shared);
    return await shared;
  };
}
