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
 * changed, about fifty for the first search of fourteen million blocks. A block that the node lacks below its head is one of the
 * first, which it has pruned.
 */
export async function bisectL1(
  node: HeaderSource,
  knownHeight: number | null,
  options?: CallOptions,
): Promise<BlockPoint | null> {
  const head = await node.blockHashAndNumber(options);
  if (head === null) return null;
  const range: { low: number; high: number; best: BlockPoint | null } = {
    low: knownHeight ?? -1,
    high: head.height + 1,
    best: null,
  };
  const narrow = async (height: number): Promise<void> => {
    try {
      const { hash, status } = await node.getBlockHeader(height, options);
      if (status === 'ACCEPTED_ON_L1') Object.assign(range, { low: height, best: { height, hash } });
      else range.high = height;
    } catch (error) {
      if (!isRpcError(error, rpcCodes.blockNotFound)) throw error;
      range.low = height;
    }
  };
  for (let step = 1; range.low + 1 < range.high && range.high > head.height; step *= 2)
    await narrow(Math.min(range.low + step, head.height));
  while (range.low + 1 < range.high) await narrow(Math.floor((range.low + range.high) / 2));
  if (range.best === null && knownHeight !== null && knownHeight <= head.height) await narrow(knownHeight);
  return range.best;
}
