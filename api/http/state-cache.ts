import { createLruCache } from '../../infra/lru.ts';
import { MAX_AGE_MS } from './answer-cache.ts';

/** Values that follow from the state of the read models, kept while that is the same. */
export interface StateCache<K, V> {
  /**
   * The values of some keys, in the order of the keys.
   *
   * @param state names everything that a value follows from besides its key, and was read before; null: nothing is kept
   * @param read the values of the keys that are not kept, in the order of the keys
   */
  values(
    state: string | null,
    keys: readonly K[],
    read: (missing: readonly K[]) => Promise<readonly V[]>,
  ): Promise<readonly V[]>;
}

const MAX_VALUES = 5000;

/** No value is kept longer than an answer. `textOf` tells keys apart. */
export function createStateCache<K, V>(textOf: (key: K) => string, now: () => number): StateCache<K, V> {
  const emptied = (state: string | null, expiresAt: number) => ({
    state,
    expiresAt,
    values: createLruCache<string, { readonly value: V }>(MAX_VALUES),
  });
  let kept = emptied(null, 0);
  return {
    async values(state, keys, read) {
      if (state === null) return await read(keys);
      const isUsable = kept.state === state && now() < kept.expiresAt;
      if (!isUsable) kept = emptied(state, now() + MAX_AGE_MS);
      // Another request may replace them while this one reads.
      const { values } = kept;
      const known = keys.map((key) => values.get(textOf(key)));
      const missing = keys.filter((_, index) => known[index] === undefined);
      const added = missing.length === 0 ? [] : (await read(missing)).map((value) => ({ value }));
      const left = added.values();
      return keys.map((key, index) => {
        const held = known[index] ?? left.next().value;
        if (held === undefined) throw new Error(`no value was read for ${textOf(key)}`);
        values.set(textOf(key), held);
        return held.value;
      });
    },
  };
}
