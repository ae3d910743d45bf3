import { item, mix } from './hash.ts';

/**
 * One branch of the chain. Fork 0 is the chain as it would be without reorgs. A later fork takes over at `from`; the
 * `depth` heights from there are its zone, in which it keeps some of its parent's transactions (in place, or one block
 * later), drops some, and has others of its own. Above the zone all forks draw on the same transactions, as nodes do on
 * one mempool.
 */
export type Fork = {
  id: number;
  parent: number;
  from: number;
  depth: number;
  /** How much of the parent's transactions lands again: 0 to 1. */
  share: number;
  events: 'fewer' | 'same' | 'more';
};

/** Where a slot's transaction stands on a fork: under which fork's salt it was drawn, and whether a block late. */
type Landing = { salt: number; late: boolean };

export type ForkTree = {
  list(): readonly Fork[];
  get(id: number): Fork;
  add(fork: Omit<Fork, 'id'>): Fork;
  /** The fork that decides the block at a height. It decides all below, too: the line to genesis is one. */
  governing(forkId: number, height: number): number;
  /** Null: dropped. */
  landing(forkId: number, height: number, slot: number): Landing | null;
};

const ROOT: Fork = { id: 0, parent: 0, from: 0, depth: 0, share: 1, events: 'same' };
const BASE: Landing = { salt: 0, late: false };
/** Shares of a fork's own zone: a kept transaction is this often a block late; of the others, this many are dropped. */
const LATE = 0.2;
const DROPPED = 0.35;
const CACHED_PATHS = 16;

type Path = { froms: number[]; ids: number[] };

export function createForkTree(seed: number, stored: readonly Fork[] = [ROOT]): ForkTree {
  const forks = stored.length === 0 ? [ROOT] : [...stored];
  const paths = new Map<number, Path>();

  const get = (id: number): Fork => {
    const fork = forks[id];
    if (fork === undefined) throw new RangeError(`no fork ${id}`);
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

  function landing(forkId: number, height: number, slot: number): Landing | null {
    const id = governing(forkId, height);
    if (id === 0) return BASE;
    const fork = get(id);
    if (height >= fork.from + fork.depth) return BASE;
    const chance = mix(seed, height, slot, id ^ 0x5f0c) / 2 ** 32;
    if (chance < fork.share) {
      const kept = landing(fork.parent, height, slot);
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
    landing,
    add(fork) {
      const made = { ...fork, id: forks.length };
      forks.push(made);
      return made;
    },
  };
}
