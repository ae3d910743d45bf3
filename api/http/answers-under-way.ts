/** The result of making an answer: its text; null if it may not be reused; `left` if its client disconnected meanwhile. */
type Outcome = Buffer | null | 'left';

/**
 * Answers that are being made, so that equal requests of a caller wait for the first of them instead of all reading the same.
 * Keys must contain the caller: else a request would wait for another caller's place in the queue of reads.
 */
export function createAnswersUnderWay() {
  const byKey = new Map<string, Promise<Outcome>>();
  return {
    /**
     * Waits for the answer under way and returns it, or fails as that fails. null: there was none to reuse, and `make` has
     * run, which returns null for an answer that may not be reused.
     */
    async share(
      key: string,
      signal: AbortSignal,
      make: () => Promise<Buffer | null>,
    ): Promise<Buffer | null> {
      // No `await` between finding none and adding one: all requests that wait for an answer continue in the same turn.
      for (let other = byKey.get(key); other !== undefined; other = byKey.get(key)) {
        const outcome = await other;
        if (outcome === null) {
          await make();
          return null;
        }
        if (outcome !== 'left') return outcome;
      }
      const made = make();
      const shared = made.catch((error: unknown): Outcome => {
        if (signal.aborted) return 'left';
        throw error;
      });
      // It may have no waiter.
      shared.catch(() => {});
      byKey.set(key, shared);
      try {
        await made;
      } finally {
        byKey.delete(key);
      }
      return null;
    },
  };
}
