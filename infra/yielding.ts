/** Longest time for which a computation keeps the event loop. */
const MAX_BUSY_MS = 2;

/** Returns a function for long computations to await now and then: it lets other work run after `MAX_BUSY_MS`. */
export function createYielding(): () => Promise<void> {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < MAX_BUSY_MS) return;
    await new Promise((resolve) => setImmediate(resolve));
    since = performance.now();
  };
}

/** Items computed between two checks of the clock. */
const ITEMS = 16;

/** `items.map(compute)`, which lets other work run now and then. */
export async function mapYielding<T, R>(
  items: readonly T[],
  compute: (item: T, index: number) => R,
): Promise<R[]> {
  const yielding = createYielding();
  const computed: R[] = [];
  for (const [i, item] of items.entries()) {
    computed.push(compute(item, i));
    if (computed.length % ITEMS === 0) await yielding();
  }
  return computed;
}
