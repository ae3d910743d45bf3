/**
 * Answers that are being made, so that equal requests of one user wait for the first of them instead of all reading the same.
 * Keys must tell users apart: a request would wait for the place of another user in the queue of reads.
 */
export function createAnswersUnderWay() {
  const byKey = new Map<string, Promise<Buffer | null>>();
  return {
    /** The answer under way; null: there is none, it is not to be reused, or its client has left. Fails as its request fails. */
    wait: async (key: string): Promise<Buffer | null> => (await byKey.get(key)) ?? null,
    /** Makes an answer: null if it is not to be reused. */
    async make(key: string, signal: AbortSignal, work: () => Promise<Buffer | null>): Promise<void> {
      const made = work();
      const shared = made.catch((error: unknown) => {
        if (signal.aborted) return null;
        throw error;
      });
      // Nobody may wait for it.
      shared.catch(() => {});
      byKey.set(key, shared);
      try {
        await made;
      } finally {
        if (byKey.get(key) === shared) byKey.delete(key);
      }
    },
  };
}
