import type { Felt } from '../../schemas/felt.ts';
import { isRpcError, rpcCodes } from './errors.ts';
import { knowsL1Tag } from './l1-accepted.ts';
import type { CallOptions, Node } from './types.ts';

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
export async function capabilities(node: AskedNode, options?: CallOptions): Promise<Capabilities> {
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
