import { isRetryable } from '../../schemas/errors.ts';
import type { Felt } from '../../schemas/felt.ts';
import { RpcError, isRpcError, rpcCodes } from './errors.ts';
import type { BlockPoint, CallOptions, Node } from './types.ts';

type AskedNode = Pick<Node, 'chainId' | 'specVersion' | 'getBlockHeader' | 'blockHashAndNumber'>;

export interface Capabilities {
  readonly chainId: Felt;
  readonly specVersion: string;
  /** Headers say how many transactions and events a block has (specification 0.10). */
  readonly hasHeaderCounts: boolean;
  /** The `l1_accepted` tag exists (specification 0.9). */
  readonly hasL1Tag: boolean;
}

/** What the node serves and can do, found by asking it. */
export async function detectCapabilities(node: AskedNode, options?: CallOptions): Promise<Capabilities> {
  const chainId = await node.chainId(options);
  const specVersion = await node.specVersion(options);
  return {
    chainId,
    specVersion,
    hasHeaderCounts: await givesCounts(node, specVersion, options),
    hasL1Tag: await knowsL1Tag(node, options),
  };
}

async function givesCounts(node: AskedNode, specVersion: string, options?: CallOptions): Promise<boolean> {
  try {
    return (await node.getBlockHeader('latest', options)).transactionCount !== null;
  } catch (error) {
    // A chain without a block: its version has to do.
    if (!isRpcError(error, rpcCodes.blockNotFound, rpcCodes.noBlocks)) throw error;
    const [major = 0, minor = 0] = specVersion.replace(/^v/, '').split('.').map(Number);
    return major > 0 || minor >= 10;
  }
}

type HeaderSource = Pick<Node, 'getBlockHeader' | 'blockHashAndNumber'>;

/** Tells whether a node knows the `l1_accepted` tag (specification 0.9); a chain without such a block counts as knowing it. */
export async function knowsL1Tag(node: HeaderSource, options?: CallOptions): Promise<boolean> {
  try {
    await node.getBlockHeader('l1_accepted', options);
    return true;
  } catch (error) {
    if (!(error instanceof RpcError) || isRetryable(error)) throw error;
    return isRpcError(error, rpcCodes.blockNotFound, rpcCodes.noBlocks);
  }
}

/** Finds the newest block accepted on L1, by the tag while the node knows it, else by the status of blocks. */
export function createL1Finder() {
  let hasTag: boolean | null = null;
  return async (
    node: HeaderSource,
    known: number | null,
    options?: CallOptions,
  ): Promise<BlockPoint | null> => {
    hasTag ??= await knowsL1Tag(node, options);
    if (!hasTag) return await bisectL1(node, known, options);
    try {
      const { height, hash, status } = await node.getBlockHeader('l1_accepted', options);
      return status === 'ACCEPTED_ON_L1' ? { height, hash } : null;
    } catch (error) {
      if (isRpcError(error, rpcCodes.blockNotFound, rpcCodes.noBlocks)) return null;
      throw error;
    }
  };
}

/**
 * Acceptance on L1 is a prefix of the chain, so its end is found by galloping up from what is known and bisecting: one
 * call while nothing changed, some fifty for a first look at fourteen million blocks.
 */
export async function bisectL1(
  node: HeaderSource,
  known: number | null,
  options?: CallOptions,
): Promise<BlockPoint | null> {
  const head = await node.blockHashAndNumber(options);
  if (head === null) return null;
  const accepted = async (height: number): Promise<BlockPoint | null> => {
    const header = await node.getBlockHeader(height, options);
    return header.status === 'ACCEPTED_ON_L1' ? { height, hash: header.hash } : null;
  };
  let low = known ?? -1;
  let best: BlockPoint | null = null;
  let high = head.height + 1;
  for (let step = 1; low + 1 < high; step *= 2) {
    const height = Math.min(low + step, head.height);
    const point = await accepted(height);
    if (point === null) {
      high = height;
      break;
    }
    low = height;
    best = point;
  }
  while (low + 1 < high) {
    const middle = Math.floor((low + high) / 2);
    const point = await accepted(middle);
    if (point === null) high = middle;
    else {
      low = middle;
      best = point;
    }
  }
  return best ?? (known === null || known > head.height ? null : await accepted(known));
}
