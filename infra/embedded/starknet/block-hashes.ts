import { appendFileSync, readFileSync, rmSync, truncateSync } from 'node:fs';

import { errorCode } from '../../error-code.ts';
import type { ForkTree } from './forks.ts';

/** A block, by its height and the fork that made it. */
type Place = { fork: number; height: number };

/** The hashes of the blocks of all forks. A hash depends on those of all blocks below, so each is computed once and kept. */
export type BlockHashes = {
  /** Computes the hashes that are missing below, and this one. */
  at(forkId: number, height: number): string;
  /** Of a hash that was computed. */
  find(hash: string): Place | null;
  keep(place: Place, hash: string): void;
};

export type HashOptions = {
  tree: ForkTree;
  /** The hash of a block, by that of its parent. */
  hashOf: (place: Place, parentHash: string) => string;
  /** Stores the hashes, so that a restart need not make all blocks again; with `isNew`, it is emptied first. */
  file: { path: string; isNew: boolean } | null;
};

/** Heights are below. */
const FORK = 2 ** 32;
const keyOf = ({ fork, height }: Place): number => fork * FORK + height;

export function createBlockHashes({ tree, hashOf, file }: HashOptions): BlockHashes {
  const hashes = new Map<number, string>();
  const places = new Map<string, number>();
  const placeAt = (forkId: number, height: number): Place => ({
    fork: tree.governing(forkId, height),
    height,
  });
  function keep(place: Place, hash: string): void {
    const key = keyOf(place);
    hashes.set(key, hash);
    places.set(hash, key);
  }

  if (file?.isNew === true) rmSync(file.path, { force: true });
  else if (file !== null) for (const { place, hash } of readHashes(file.path)) keep(place, hash);

  return {
    at(forkId, height) {
      const known = hashes.get(keyOf(placeAt(forkId, height)));
      if (known !== undefined) return known;
      let next = height;
      while (next > 0 && !hashes.has(keyOf(placeAt(forkId, next - 1)))) next--;
      let hash = next === 0 ? '0x0' : (hashes.get(keyOf(placeAt(forkId, next - 1))) ?? '0x0');
      for (; next <= height; next++) {
        const place = placeAt(forkId, next);
        hash = hashOf(place, hash);
        keep(place, hash);
        if (file !== null) appendFileSync(file.path, `${place.fork} ${next} ${hash}\n`);
      }
      return hash;
    },
    find(hash) {
      const key = places.get(hash);
      return key === undefined ? null : { fork: Math.floor(key / FORK), height: key % FORK };
    },
    keep,
  };
}

/** Drops a last line that a crash cut off. */
function readHashes(path: string): { place: Place; hash: string }[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return [];
    throw error;
  }
  const whole = text.slice(0, text.lastIndexOf('\n') + 1);
  if (whole.length < text.length) truncateSync(path, whole.length);
  return whole
    .split('\n')
    .slice(0, -1)
    .map((line) => {
      const [fork, height, hash = ''] = line.split(' ');
      return { place: { fork: Number(fork), height: Number(height) }, hash };
    });
}
