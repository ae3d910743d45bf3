/** Shares a call between concurrent callers, and its result with those of the next `maxAgeMs`; failures are not kept. */
export function shareRecent<T>(work: () => Promise<T>, maxAgeMs: number): () => Promise<T> {
  let shared: Promise<T> | null = null;
  const forget = (): void => {
    shared = null;
  };
  return async () => {
    if (shared === null) {
      shared = work();
      shared.then(() => setTimeout(forget, maxAgeMs).unref(), forget);
    }
    return await shared;
  };
}
