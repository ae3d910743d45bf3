import { AppError } from '../../schemas/errors.ts';
import type { Felt } from '../../schemas/felt.ts';
import { isRpcError, rpcCodes } from '../node/errors.ts';
import type { BlockHeader, BlockPoint, CallOptions, Node } from '../node/types.ts';
import type { Chunk, RecordedHeader } from './ports.ts';

type HeaderSource = Pick<Node, 'getBlockHeader'>;

interface MaybeHashed {
  readonly height: number;
  /** null: not known. */
  readonly hash: Felt | null;
}

export type IndexedChain = ReturnType<typeof createIndexedChain>;

/** The live chunk's blocks: final ones up to `final()`, and the recorded ones above, each the child of the one below. */
export function createIndexedChain(chunk: Chunk, headers: readonly RecordedHeader[]) {
  let cursor = chunk.cursor;
  let final: MaybeHashed = { height: chunk.finalHeight, hash: chunk.finalHash };
  let reverting = headers.find(({ intent }) => intent === 'revert')?.height ?? null;
  const hashes = new Map<number, Felt>(headers.map(({ height, hash }) => [height, hash]));
  let top = headers.at(-1)?.height ?? final.height;
  /** null outside the recorded blocks, and at a final block that was never fetched. */
  const hashAt = (height: number): Felt | null =>
    height === final.height ? final.hash : (hashes.get(height) ?? null);

  return {
    /** The next height to index. Blocks recorded at or above it may or may not be in the log. */
    cursor: (): number => cursor,
    final: (): MaybeHashed => final,
    /** The highest recorded or final block. */
    tip: (): MaybeHashed => ({ height: top, hash: hashAt(top) }),
    hashAt,
    /** True if blocks are recorded at or above the cursor. */
    hasUnconfirmed: (): boolean => top >= cursor,
    /** Lowest height marked for revert; null: none. */
    revertingFrom: (): number | null => reverting,
    recorded(points: readonly BlockPoint[]): void {
      for (const { height, hash } of points) hashes.set(height, hash);
      top = points.at(-1)?.height ?? top;
    },
    /** `point`: the last of blocks that were not recorded, because they are final. */
    cursorMoved(to: number, point: BlockPoint | null): void {
      cursor = to;
      if (point === null) return;
      final = point;
      top = point.height;
    },
    markedForRevert(fork: number): void {
      cursor = Math.min(cursor, fork + 1);
      reverting = fork + 1;
    },
    deletedFrom(from: number): void {
      for (let height = top; height >= from; height -= 1) hashes.delete(height);
      top = Math.min(top, from - 1);
      if (reverting !== null && from <= reverting) reverting = null;
    },
    finalized(point: BlockPoint): void {
      for (let height = final.height + 1; height <= point.height; height += 1) hashes.delete(height);
      final = point;
    },
  };
}

type ComparedChain = Pick<IndexedChain, 'final' | 'hashAt' | 'tip' | 'hasUnconfirmed'>;

/** `match`: all indexed blocks up to `upTo` are the node's. `mismatch`: the node has another block at height `at`. */
export type HeadComparison =
  | { readonly kind: 'match'; readonly upTo: number }
  | { readonly kind: 'mismatch'; readonly at: number };

/**
 * Compares the indexed chain with the node's head. A head that is an indexed block below the tip is no mismatch: the node
 * is behind. Above a confirmed tip nothing is fetched, because the next block's parent hash shows a mismatch.
 */
export async function compareWithHead(
  node: HeaderSource,
  indexed: ComparedChain,
  head: BlockPoint,
  options?: CallOptions,
): Promise<HeadComparison> {
  const at = Math.min(head.height, indexed.tip().height);
  const expected = at < indexed.final().height ? null : indexed.hashAt(at);
  if (expected === null) return { kind: 'match', upTo: at };
  if (at < head.height && !indexed.hasUnconfirmed()) return { kind: 'match', upTo: at };
  const actual = at === head.height ? head.hash : (await node.getBlockHeader(at, options)).hash;
  return actual === expected ? { kind: 'match', upTo: at } : { kind: 'mismatch', at };
}

/** Concurrent header requests while descending to a fork. */
const PAGE = 16;

/**
 * Finds the highest common block below a height where the chains differ. The node's blocks from there up to `mismatchAt`
 * must form one chain in two reads, because nodes behind a load balancer may be on different forks.
 *
 * @throws `NODE_INCONSISTENT` (retryable) if the node's answers contradict each other
 * @throws `REORG_BELOW_L1` if the node contradicts a block that was accepted on L1
 */
export async function findFork(
  node: HeaderSource,
  indexed: ComparedChain,
  mismatchAt: number,
  options?: CallOptions,
): Promise<number> {
  const final = indexed.final();
  const read = (height: number): Promise<BlockHeader> => node.getBlockHeader(height, options);
  let child: BlockHeader | null = null;
  let top: BlockHeader | null = null;
  for (let high = mismatchAt; high > final.height; high -= PAGE) {
    const low = Math.max(final.height + 1, high - PAGE + 1);
    const page = await Promise.all(Array.from({ length: high - low + 1 }, (_, index) => read(high - index)));
    for (const header of page) {
      if (child !== null && child.parentHash !== header.hash) throw inconsistent(header.height);
      if (header.hash === indexed.hashAt(header.height)) return await confirmFork(read, header, child, top);
      child = header;
      top ??= header;
    }
  }
  const parentHash = child?.parentHash ?? null;
  if (final.hash !== null && parentHash !== final.hash) {
    await assertStillFinal(node, { height: final.height, hash: final.hash }, options);
    throw inconsistent(final.height);
  }
  return await confirmFork(read, { height: final.height, hash: parentHash }, child, top);
}

/** Reads the blocks that the decision depends on a second time. */
async function confirmFork(
  read: (height: number) => Promise<BlockHeader>,
  fork: MaybeHashed,
  child: BlockHeader | null,
  top: BlockHeader | null,
): Promise<number> {
  // Without a child, the node now has the indexed block at the height that differed before.
  if (child === null || top === null || child.parentHash !== fork.hash) throw inconsistent(fork.height);
  const [topAgain, childAgain] = [await read(top.height), await read(child.height)];
  if (topAgain.hash !== top.hash || childAgain.hash !== child.hash) throw inconsistent(top.height);
  return fork.height;
}

/** Throws `REORG_BELOW_L1` if the node twice returns another block, accepted on L1, at the height of a final block. */
export async function assertStillFinal(
  node: HeaderSource,
  point: BlockPoint,
  options?: CallOptions,
): Promise<void> {
  for (let attempt = 0; attempt < 2; attempt += 1) {
    const { hash, status } = await node.getBlockHeader(point.height, options);
    if (hash === point.hash || status !== 'ACCEPTED_ON_L1') return;
  }
  throw new AppError(
    'REORG_BELOW_L1',
    `the node has another block at height ${point.height} than ${point.hash}, which was accepted on L1; if the node is right, run tds revert ${point.height} ${point.hash} and restart the ingester`,
    { details: { ...point } },
  );
}

export function inconsistent(height: number): AppError {
  return new AppError('NODE_INCONSISTENT', `the node's answers about block ${height} contradict each other`, {
    retryable: true,
    details: { height },
  });
}

/** null: the node does not have the block. */
export async function headerOf(
  node: HeaderSource,
  height: number,
  options?: CallOptions,
): Promise<BlockHeader | null> {
  try {
    return await node.getBlockHeader(height, options);
  } catch (error) {
    if (isRpcError(error, rpcCodes.blockNotFound)) return null;
    throw error;
  }
}

/** Number of leading blocks that form a chain on top of `parent` (null: on any block). */
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
