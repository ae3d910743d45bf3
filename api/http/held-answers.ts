import type { ServerResponse } from 'node:http';

import { HttpError } from './errors.ts';

/** MiB of answers to a user that its clients have not read. */
export const HELD_MIB_PER_USER = 128;
/** The refusal replaces an answer whose headers may allow caches to keep it. */
const HEADERS = { 'Retry-After': '5', 'Cache-Control': 'no-store' };

/**
 * Limits what is held in memory for clients that do not read it. Returns a function that counts an answer until it is sent, of
 * any size if it is the only one.
 *
 * @throws 503 where the other answers of the user leave no room for it
 */
export function limitHeldAnswers(): (response: ServerResponse, user: string, bytes: number) => void {
  const heldBy = new Map<string, number>();
  return (response, user, bytes) => {
    const held = heldBy.get(user) ?? 0;
    if (held > 0 && held + bytes > HELD_MIB_PER_USER * 1_048_576) {
      throw new HttpError(503, 'overloaded', 'Too many answers to this user have not been read yet.', {
        headers: HEADERS,
      });
    }
    if (response.closed) return;
    heldBy.set(user, held + bytes);
    response.once('close', () => {
      const left = (heldBy.get(user) ?? 0) - bytes;
      if (left > 0) heldBy.set(user, left);
      else heldBy.delete(user);
    });
  };
}
