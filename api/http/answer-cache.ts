/** Answers as they were sent, to be sent again as long as nothing that they tell has changed. */
export interface KeptAnswers {
  get(key: string): Buffer | undefined;
  keep(key: string, answer: Buffer): void;
}

/** Some 700 pages of 50 transfers. */
const KEPT_BYTES = 32_000_000;

/** What changes without a sign (a table mended by hand) is seen after so long all the same. */
const KEPT_MS = 10_000;

/**
 * Bounded by bytes and by age; the oldest goes first. A key must change with everything that the answer tells: nothing is
 * taken back here.
 */
export function keepAnswers(
  now: () => number,
  { maxBytes = KEPT_BYTES, maxMs = KEPT_MS }: { maxBytes?: number; maxMs?: number } = {},
): KeptAnswers {
  // A Map iterates in the order of insertion, and nothing is moved in it: the first entry is the oldest.
  const entries = new Map<string, { readonly answer: Buffer; readonly until: number }>();
  let bytes = 0;
  const drop = (key: string): void => {
    bytes -= entries.get(key)?.answer.length ?? 0;
    entries.delete(key);
  };
  return {
    get(key) {
      const entry = entries.get(key);
      return entry !== undefined && entry.until > now() ? entry.answer : undefined;
    },
    keep(key, answer) {
      drop(key);
      entries.set(key, { answer, until: now() + maxMs });
      bytes += answer.length;
      for (const [oldest, { until }] of entries) {
        if (bytes <= maxBytes && until > now()) break;
        drop(oldest);
      }
    },
  };
}
