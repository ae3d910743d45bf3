import { createLruCache } from '../../infra/lru.ts';
import { MAX_AGE_MS } from './answer-cache.ts';

/** Values that follow from the state of the read models, kept while that is the same. */
export interface StateCache<K extends string, V> {
  /**
   * The values of these keys; a key without one is missing.
   *
   * @param state identifies everything besides its key that a value depends on, and was read before; null: nothing is
   *   cached
   * @param read returns the values of the keys that are not cached
   */
  values(
    state: string | null,
    keys: readonly K[],
    read: (unknown: readonly K[]) => Promise<ReadonlyMap<K, V>>,
  ): Promise<ReadonlyMap<K, V>>;
}

const MAX_VALUES = 5000;

/** No value is kept longer than an answer. */
export function createStateCache<K extends string, V extends object | number>(
  now: () => number,
): StateCache<K, V> {
  const emptied = (state: string | null, expiresAt: number) => ({
    state,
    expiresAt,
    /** null: the key has no value. */
    values: createLruCache<K, V | null>(MAX_VALUES),
  });
  let kept = emptied(null, 0);
  return {
    async values(state, keys, read) {
      if (state === null) return await read(keys);
      const isUsable = kept.state === state && now() < kept.expiresAt;
      if (!isUsable) kept = emptied(state, now() + MAX_AGE_MS);
      // Another request may replace them while this one reads.
      const { values } = kept;
      const found = new Map<K, V>();
      const unknown: K[] = [];
      for (const key of new Set(keys)) {
        const value = values.get(key);
        if (value === undefined) unknown.push(key);
        else if (value !== null) found.set(key, value);
      }
      if (unknown.length === 0) return found;
      const added = await read(unknown);
      for (const key of unknown) values.set(key, added.get(key) ?? null);
      return new Map([...found, ...added]);
    },
  };
}
