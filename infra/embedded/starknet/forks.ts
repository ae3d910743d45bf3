import { z } from 'zod';

import { item, mix } from './hash.ts';

const height = z.int().min(0);

/**
 * One branch of the chain. Fork 0 is the chain without reorgs. A later fork replaces its parent from height `from` on. In
 * its first `depth` blocks it keeps some transactions of its parent (at their height, or one higher), drops some, and
 * adds others of its own. Above, all forks include the same transactions, as from one mempool.
 */
export const forkSchema = z.object({
  id: height,
  parent: height,
  from: height,
  depth: height,
  /** Fraction of the parent's transactions that are included again. */
  share: z.number(),
  events: z.enum(['fewer', 'same', 'more']),
});
export type Fork = z.infer<typeof forkSchema>;

/** How a fork includes the transaction of a slot: the fork it was drawn for, and whether it comes one block late. */
type Inclusion = { salt: number; late: boolean };

export type ForkTree = {
  list(): readonly Fork[];
  get(id: number): Fork;
  add(fork: Omit<Fork, 'id'>): Fork;
  /** The fork that made the block at a height of a fork: the fork itself or one of its ancestors. */
  governing(forkId: number, height: number): number;
  /** Null: the fork drops the transaction. */
  inclusion(forkId: number, height: number, slot: number): Inclusion | null;
};

const ROOT: Fork = { id: 0, parent: 0, from: 0, depth: 0, share: 1, events: 'same' };
const BASE: Inclusion = { salt: 0, late: false };
/** Fractions of the kept transactions that come one block late, and of the others that are dropped. */
const LATE = 0.2;
const DROPPED = 0.35;
const CACHED_PATHS = 16;

type Path = { froms: number[]; ids: number[] };

export function createForkTree(seed: number, stored: readonly Fork[]): ForkTree {
  const forks = stored.length === 0 ? [ROOT] : [...stored];
  const paths = new Map<number, Path>();

  const get = (id: number): Fork => {
    const fork = forks[id];
    if (fork === undefined) throw new RangeError(`there is no fork ${id}`);
    return fork;
  };

  function path(id: number): Path {
    const known = paths.get(id);
    if (known !== undefined) return known;
    const froms: number[] = [];
    const ids: number[] = [];
    let ceiling = Infinity;
    for (let fork = get(id); ; fork = get(fork.parent)) {
      if (fork.from < ceiling) {
        froms.push(fork.from);
        ids.push(fork.id);
        ceiling = fork.from;
      }
      if (fork.id === 0) break;
    }
    const made = { froms: froms.reverse(), ids: ids.reverse() };
    if (paths.size >= CACHED_PATHS) paths.clear();
    paths.set(id, made);
    return made;
  }

  function governing(forkId: number, height: number): number {
    const fork = get(forkId);
    if (height >= fork.from) return forkId;
    if (height >= get(fork.parent).from) return fork.parent;
    const { froms, ids } = path(forkId);
    let low = 0;
    let high = froms.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (item(froms, middle) <= height) low = middle;
      else high = middle - 1;
    }
    return item(ids, low);
  }

  function inclusion(forkId: number, height: number, slot: number): Inclusion | null {
    const id = governing(forkId, height);
    if (id === 0) return BASE;
    const fork = get(id);
    if (height >= fork.from + fork.depth) return BASE;
    const chance = mix(seed, height, slot, id ^ 0x5f0c) / 2 ** 32;
    if (chance < fork.share) {
      const kept = inclusion(fork.parent, height, slot);
      if (kept === null || kept.late) return kept;
      const late = chance < fork.share * LATE;
      return late ? { salt: kept.salt, late } : kept;
    }
    const rest = (chance - fork.share) / (1 - fork.share);
    return rest < DROPPED && fork.events !== 'more' ? null : { salt: id, late: false };
  }

  return {
    list: () => forks,
    get,
    governing,
    inclusion,
    add(fork) {
      const made = { ...fork, id: forks.length };
      forks.push(made);
      return made;
    },
  };
}
