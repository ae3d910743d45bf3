import { isRetryable } from '../../schemas/errors.ts';
import type { Felt } from '../../schemas/felt.ts';
import { RpcError, isRpcError, rpcCodes } from './errors.ts';
import type { BlockPoint, CallOptions, Node } from './types.ts';

type ProbedNode = Pick<Node, 'chainId' | 'specVersion' | 'getBlockHeader' | 'blockHashAndNumber'>;

export interface Capabilities {
  readonly chainId: Felt;
  readonly specVersion: string;
  /** Headers have transaction and event counts (specification 0.10). */
  readonly hasHeaderCounts: boolean;
  /** The `l1_accepted` tag exists (specification 0.9). */
  readonly hasL1Tag: boolean;
}

/** Detects what the node serves and supports. */
export async function detectCapabilities(node: ProbedNode, options?: CallOptions): Promise<Capabilities> {
  const chainId = await node.chainId(options);
  const specVersion = await node.specVersion(options);
  return {
    chainId,
    specVersion,
    hasHeaderCounts: await detectHeaderCounts(node, specVersion, options),
    hasL1Tag: await supportsL1Tag(node, options),
  };
}

async function detectHeaderCounts(
  node: ProbedNode,
  specVersion: string,
  options?: CallOptions,
): Promise<boolean> {
  try {
    return (await node.getBlockHeader('latest', options)).transactionCount !== null;
  } catch (error) {
    // On a chain without blocks only the version tells.
    if (!isRpcError(error, rpcCodes.blockNotFound, rpcCodes.noBlocks)) throw error;
    return isSpecFrom(specVersion, 10);
  }
}

/** Whether a version of the JSON-RPC specification is 0.`minor` or later. */
export function isSpecFrom(specVersion: string, minor: number): boolean {
  const [major = 0, served = 0] = specVersion.replace(/^v/, '').split('.').map(Number);
  return major > 0 || served >= minor;
}

type HeaderSource = Pick<Node, 'getBlockHeader' | 'blockHashAndNumber'>;

/** True if the node supports the `l1_accepted` tag (specification 0.9), even if no block is accepted on L1 yet. */
async function supportsL1Tag(node: HeaderSource, options?: CallOptions): Promise<boolean> {
  try {
    await node.getBlockHeader('l1_accepted', options);
    return true;
  } catch (error) {
    if (!(error instanceof RpcError) || isRetryable(error)) throw error;
    return isRpcError(error, rpcCodes.blockNotFound, rpcCodes.noBlocks);
  }
}

/** Returns a function that finds the newest block accepted on L1: by the tag if the node supports it, else by block status. */
export function createL1Finder() {
  let hasTag: boolean | null = null;
  return async (
    node: HeaderSource,
    knownHeight: number | null,
    options?: CallOptions,
  ): Promise<BlockPoint | null> => {
    try {
      hasTag ??= await supportsL1Tag(node, options);
      return hasTag ? await readL1Tag(node, options) : await bisectL1(node, knownHeight, options);
    } catch (error) {
      // Another node, or another version of it, may be at the address now.
      if (error instanceof RpcError && !isRetryable(error)) hasTag = null;
      throw error;
    }
  };
}

async function readL1Tag(node: HeaderSource, options?: CallOptions): Promise<BlockPoint | null> {
  try {
    const { height, hash, status } = await node.getBlockHeader('l1_accepted', options);
    return status === 'ACCEPTED_ON_L1' ? { height, hash } : null;
  } catch (error) {
    if (isRpcError(error, rpcCodes.blockNotFound, rpcCodes.noBlocks)) return null;
    throw error;
  }
}

/**
 * Blocks accepted on L1 are a prefix of the chain: gallops up from the known height, then bisects. Two calls while nothing
 * changed, about fifty for the first search of fourteen million blocks.
 */
export async function bisectL1(
  node: HeaderSource,
  knownHeight: number | null,
  options?: CallOptions,
): Promise<BlockPoint | null> {
  const head = await node.blockHashAndNumber(options);
  if (head === null) return null;
  const accepted = async (height: number): Promise<BlockPoint | null> => {
    const header = await node.getBlockHeader(height, options);
    return header.status === 'ACCEPTED_ON_L1' ? { height, hash: header.hash } : null;
  };
  let low = knownHeight ?? -1;
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
  if (best !== null || knownHeight === null || knownHeight > head.height) return best;
  return await accepted(knownHeight);
}
