/** Serialized answers, reused until what they depend on changes. */
export interface AnswerCache {
  get(key: string): Buffer | undefined;
  set(key: string, answer: Buffer): void;
}

/** About 700 pages of 50 transfers. */
const MAX_BYTES = 32_000_000;

/** Bounds how long a change outside the log (a table repaired by hand) stays unseen. */
export const MAX_AGE_MS = 10_000;

/**
 * Bounded by age and by bytes, those of the keys included. There is no invalidation: a key must include everything that the answer
 * depends on.
 */
export function createAnswerCache(
  now: () => number,
  { maxBytes = MAX_BYTES, maxAgeMs = MAX_AGE_MS }: { maxBytes?: number; maxAgeMs?: number } = {},
): AnswerCache {
  // A Map iterates in insertion order, and `set` reinserts: the first entry is the oldest.
  const entries = new Map<string, { readonly answer: Buffer; readonly expiresAt: number }>();
  let bytes = 0;
  const evict = (key: string): void => {
    const entry = entries.get(key);
    if (entry === undefined) return;
    bytes -= key.length + entry.answer.length;
    entries.delete(key);
  };
  return {
    get(key) {
      const entry = entries.get(key);
      return entry !== undefined && entry.expiresAt > now() ? entry.answer : undefined;
    },
    set(key, answer) {
      evict(key);
      entries.set(key, { answer, expiresAt: now() + maxAgeMs });
      bytes += key.length + answer.length;
      for (const [oldest, { expiresAt }] of entries) {
        if (bytes <= maxBytes && expiresAt > now()) break;
        evict(oldest);
      }
    },
  };
}
