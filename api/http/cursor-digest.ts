import { createHash } from 'node:crypto';

export const DIGEST_BYTES = 8;

/** What a cursor keeps of a text, such as that of its query: it is rejected for another one. */
export function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest().subarray(0, DIGEST_BYTES);
}
