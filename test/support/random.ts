/** A seeded random source: the same seed gives the same sequence. */
export interface Random {
  /** An integer from 0 to `limit - 1`. */
  below(limit: number): number;
  pick<T>(from: readonly T[]): T;
  chance(perThousand: number): boolean;
}

/** mulberry32 */
export function createRandom(seed: number): Random {
  let state = seed >>> 0;
  const below = (limit: number): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * limit);
  };
  return {
    below,
    pick<T>(from: readonly T[]): T {
      const one = from[below(from.length)];
      if (one === undefined) throw new RangeError('nothing to pick from');
      return one;
    },
    chance: (perThousand) => below(1000) < perThousand,
  };
}
