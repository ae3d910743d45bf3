/**
 * Returns a function that passes items on in batches and resolves to the item's own result. One batch runs at a time; items that
 * come meanwhile are in the next. A batch that fails is passed on again item by item, so that an item fails for itself alone.
 *
 * @param work returns a result for each item, in their order; may be repeated
 * @param options.most items of one batch
 * @param options.failsAll true for an error that any item would meet, as when a store is unavailable: the whole batch fails
 */
export function inBatches<I, R>(
  work: (batch: readonly I[]) => Promise<readonly R[]>,
  { most, failsAll }: { readonly most: number; readonly failsAll: (error: unknown) => boolean },
): (item: I) => Promise<R> {
  interface Waiting extends PromiseWithResolvers<R> {
    readonly item: I;
  }
  const waiting: Waiting[] = [];
  let isWorking = false;

  const pass = async (batch: readonly Waiting[]): Promise<void> => {
    try {
      const results = await work(batch.map(({ item }) => item));
      if (results.length !== batch.length) throw new TypeError('a batch has a result for each item');
      for (const [index, result] of results.entries()) batch[index]?.resolve(result);
    } catch (error) {
      if (batch.length > 1 && !failsAll(error)) for (const one of batch) await pass([one]);
      else for (const { reject } of batch) reject(error);
    }
  };
  const passAll = async (): Promise<void> => {
    isWorking = true;
    // Items of the same turn are in the first batch, too.
    await Promise.resolve();
    while (waiting.length > 0) await pass(waiting.splice(0, most));
    isWorking = false;
  };
  return (item) => {
    const one = { item, ...Promise.withResolvers<R>() };
    waiting.push(one);
    if (!isWorking) void passAll();
    return one.promise;
  };
}
