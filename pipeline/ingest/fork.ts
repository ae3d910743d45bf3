import { AppError } from '../../schemas/errors.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { BlockHeader, BlockPoint, CallOptions, Node } from '../node/types.ts';
import type { Chunk, RecordedHeader } from './ports.ts';

type HeaderSource = Pick<Node, 'getBlockHeader'>;
type Known = Pick<IndexedChain, 'floor' | 'hashAt' | 'tip' | 'isUnsettled'>;

/** `agreed`: every block of ours up to `upTo` is the node's. `disputed`: the node serves another block at a height of ours. */
export type Comparison =
  | { readonly kind: 'agreed'; readonly upTo: number }
  | { readonly kind: 'disputed'; readonly at: number };

/** Headers read side by side on the way down to a fork. */
const PAGE = 16;

/**
 * Compares our chain with the node's head. A head below our tip is no dispute as long as it is a block of ours: the node
 * is behind. Above a settled tip nothing is read: the next block's parent hash tells.
 */
export async function compareWithHead(
  node: HeaderSource,
  ours: Known,
  head: BlockPoint,
  options?: CallOptions,
): Promise<Comparison> {
  const at = Math.min(head.height, ours.tip().height);
  const known = at < ours.floor().height ? null : ours.hashAt(at);
  if (known === null) return { kind: 'agreed', upTo: at };
  if (at < head.height && !ours.isUnsettled()) return { kind: 'agreed', upTo: at };
  const theirs = at === head.height ? head.hash : (await node.getBlockHeader(at, options)).hash;
  return theirs === known ? { kind: 'agreed', upTo: at } : { kind: 'disputed', at };
}

/**
 * Finds the highest block that is both ours and the node's, below a height where the two differ. The node's blocks from
 * there up to the disputed height must be one chain, read twice: a node behind a balancer may answer from two forks.
 *
 * @throws `NODE_INCONSISTENT` (retryable) when the node's answers do not fit together: nothing is decided then
 * @throws `REORG_BELOW_L1` when the node contradicts a block it had accepted on L1
 */
export async function findFork(
  node: HeaderSource,
  ours: Known,
  disputed: number,
  options?: CallOptions,
): Promise<number> {
  const floor = ours.floor();
  const read = (height: number): Promise<BlockHeader> => node.getBlockHeader(height, options);
  let child: BlockHeader | null = null;
  let top: BlockHeader | null = null;
  for (let high = disputed; high > floor.height; high -= PAGE) {
    const low = Math.max(floor.height + 1, high - PAGE + 1);
    const page = await Promise.all(Array.from({ length: high - low + 1 }, (_, index) => read(high - index)));
    for (const header of page) {
      if (child !== null && child.parentHash !== header.hash) throw inconsistent(header.height);
      if (header.hash === ours.hashAt(header.height)) return await confirm(read, header, child, top);
      child = header;
      top ??= header;
    }
  }
  if (floor.hash === null) {
    return await confirm(read, { height: floor.height, hash: child?.parentHash ?? null }, child, top);
  }
  if (child === null || child.parentHash !== floor.hash) {
    await assertStillFinal(node, { height: floor.height, hash: floor.hash }, options);
    throw inconsistent(floor.height);
  }
  return await confirm(read, { height: floor.height, hash: floor.hash }, child, top);
}

/** Reads the blocks that the decision rests on a second time. */
async function confirm(
  read: (height: number) => Promise<BlockHeader>,
  fork: { readonly height: number; readonly hash: Felt | null },
  child: BlockHeader | null,
  top: BlockHeader | null,
): Promise<number> {
  // No child: the node now serves our block at the height that was disputed.
  if (child === null || top === null || child.parentHash !== fork.hash) throw inconsistent(fork.height);
  const again = [await read(top.height), await read(child.height)];
  if (again[0]?.hash !== top.hash || again[1]?.hash !== child.hash) throw inconsistent(top.height);
  return fork.height;
}

/** Throws `REORG_BELOW_L1` when the node twice shows another block, accepted on L1, at the height of a final one of ours. */
export async function assertStillFinal(
  node: HeaderSource,
  point: BlockPoint,
  options?: CallOptions,
): Promise<void> {
  for (let look = 0; look < 2; look += 1) {
    const { hash, status } = await node.getBlockHeader(point.height, options);
    if (hash === point.hash || status !== 'ACCEPTED_ON_L1') return;
  }
  throw new AppError(
    'REORG_BELOW_L1',
    `the node has another block at ${point.height} than ${point.hash}, which was accepted on L1`,
    { details: { ...point } },
  );
}

export function inconsistent(height: number): AppError {
  return new AppError('NODE_INCONSISTENT', `the node's answers about block ${height} do not fit together`, {
    retryable: true,
    details: { height },
  });
}

/** How many of the blocks are a chain, the first one being the child of `parent` (null: of any). */
export function linkedLength(
  blocks: readonly { readonly hash: Felt; readonly parent_hash: Felt }[],
  parent: Felt | null,
): number {
  let expected = parent;
  const broken = blocks.findIndex((block) => {
    const linked = expected === null || block.parent_hash === expected;
    expected = block.hash;
    return !linked;
  });
  return broken === -1 ? blocks.length : broken;
}

/** What the live chunk holds: final blocks up to `floor`, and everything recorded above it, each the child of the one below. */
export interface IndexedChain {
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
  markForRevert(fork: number): void;
  dropped(from: number): void;
  finalised(point: BlockPoint): void;
}

export function createIndexedChain(chunk: Chunk, headers: readonly RecordedHeader[]): IndexedChain {
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
    markForRevert(fork) {
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
