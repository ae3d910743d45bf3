/**
 * Returns a wait of which at most `perSecond` end within any second, in their order; it rejects with the reason of its signal.
 * Timers measure the second: the windows of p-queue end by the machine's clock, and after that was set back they would last
 * until it has caught up.
 */
export function createRate(perSecond: number): (signal?: AbortSignal) => Promise<void> {
  let free = perSecond;
  /** In order of arrival. */
  const waiting = new Set<() => void>();
  const begin = (resolve: () => void): void => {
    setTimeout(release, 1000);
    resolve();
  };
  const release = (): void => {
    const [next] = waiting;
    if (next === undefined) free += 1;
    else next();
  };
  return (signal) =>
    new Promise((resolve, reject) => {
      const leave = (): void => {
        waiting.delete(next);
        reject(signal?.reason);
      };
      const next = (): void => {
        waiting.delete(next);
        signal?.removeEventListener('abort', leave);
        begin(resolve);
      };
      if (signal?.aborted === true) return leave();
      if (free > 0) {
        free -= 1;
        return begin(resolve);
      }
      waiting.add(next);
      signal?.addEventListener('abort', leave, { once: true });
    });
}
