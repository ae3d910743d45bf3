import type { Felt } from '../../schemas/felt.ts';
import type { BlockPoint } from '../node/types.ts';
import type { Chunk, RecordedHeader } from './ports.ts';

/** What the live chunk holds: final blocks up to `floor`, and everything recorded above it, each the child of the one below. */
export interface OurChain {
  /** The next height to be indexed; what is recorded at or above it is unsettled. */
  cursor(): number;
  floor(): { readonly height: number; readonly hash: Felt | null };
  /** The highest block held, recorded or final. */
  tip(): { readonly height: number; readonly hash: Felt | null };
  /** null where the hash is not known: at a floor never seen, outside of what is held. */
  hashAt(height: number): Felt | null;
  isUnsettled(): boolean;
  /** Lowest height that is to be reverted, null when there is none. */
  revertingFrom(): number | null;

  recorded(points: readonly BlockPoint[]): void;
  /** The cursor moved; `final` where the blocks were not recorded. */
  moved(to: number, final: BlockPoint | null): void;
  intendRevert(fork: number): void;
  dropped(from: number): void;
  finalised(point: BlockPoint): void;
}

export function createOurChain(chunk: Chunk, headers: readonly RecordedHeader[]): OurChain {
  let cursor = chunk.cursor;
  let floor: { height: number; hash: Felt | null } = { height: chunk.finalHeight, hash: chunk.finalHash };
  let reverting = headers.find(({ intent }) => intent === 'revert')?.height ?? null;
  const hashes = new Map<number, Felt>(headers.map(({ height, hash }) => [height, hash]));
  const hashAt = (height: number): Felt | null =>
    height === floor.height ? floor.hash : (hashes.get(height) ?? null);
  const top = (): number => floor.height + hashes.size;

  return {
    cursor: () => cursor,
    floor: () => floor,
    tip: () => ({ height: top(), hash: hashAt(top()) }),
    hashAt,
    isUnsettled: () => top() >= cursor,
    revertingFrom: () => reverting,
    recorded(points) {
      for (const { height, hash } of points) hashes.set(height, hash);
    },
    moved(to, final) {
      cursor = to;
      if (final !== null) floor = final;
    },
    intendRevert(fork) {
      cursor = Math.min(cursor, fork + 1);
      reverting = fork + 1;
    },
    dropped(from) {
      for (let height = top(); height >= from; height -= 1) hashes.delete(height);
      if (reverting !== null && from <= reverting) reverting = null;
    },
    finalised(point) {
      for (let height = floor.height + 1; height <= point.height; height += 1) hashes.delete(height);
      floor = point;
    },
  };
}
