import { systemClock } from '../../infra/clock.ts';
import type { Felt } from '../../schemas/felt.ts';
import { readClass, readFelt, readFelts, readHeight, readPoint, readVersion } from './parse.ts';
import { invalidAnswer, isRpcError, rpcCodes } from './errors.ts';
import { withChainCheck } from './chain-id.ts';
import type { ChainCheck } from './chain-id.ts';
import { createL1Finder } from './capabilities.ts';
import type { NodeMetrics } from './metrics.ts';
import { parseBlockHeader, parseBlockWithReceipts } from './parse.ts';
import { createRpc } from './rpc.ts';
import type { RpcCall, RpcParams } from './rpc.ts';
import type { BlockId, BlockPoint, CallOptions, FunctionCall, Node } from './types.ts';

export interface NodeOptions {
  readonly url: string;
  readonly timeoutMs: number;
  readonly maxConcurrent: number;
  readonly metrics: NodeMetrics;
  /** Called with the node's chain id before the first request; no request is made until it resolves. */
  readonly checkChain?: ChainCheck;
  readonly attempts?: number;
}

/** A Starknet node by URL, JSON-RPC 0.8 to 0.10. Every answer is parsed, because the node is untrusted. */
export function createNode(options: NodeOptions): Node {
  const { checkChain } = options;
  const unchecked = createRpc({ clock: systemClock, ...options });
  const rpc = checkChain === undefined ? unchecked : withChainCheck(unchecked, checkChain);

  const ask = async <T>(
    method: string,
    params: RpcParams,
    parse: (result: unknown, bytes: number) => T,
    callOptions?: CallOptions,
  ): Promise<T> => await rpc.call({ method, params, parse }, callOptions);

  const findL1 = createL1Finder();
  const node: Node = {
    chainId: (callOptions) => ask('starknet_chainId', {}, readFelt, callOptions),
    specVersion: (callOptions) => ask('starknet_specVersion', {}, readVersion, callOptions),
    async blockHashAndNumber(callOptions) {
      try {
        return await ask('starknet_blockHashAndNumber', {}, readPoint, callOptions);
      } catch (error) {
        if (isRpcError(error, rpcCodes.noBlocks, rpcCodes.blockNotFound)) return null;
        throw error;
      }
    },
    async getBlockWithReceipts(id, callOptions) {
      const fetched = await ask(
        'starknet_getBlockWithReceipts',
        { block_id: blockId(id) },
        parseBlockWithReceipts,
        callOptions,
      );
      checkIdentity(id, fetched.body);
      return fetched;
    },
    async getBlockHeader(id, callOptions) {
      const header = await ask(
        'starknet_getBlockWithTxHashes',
        { block_id: blockId(id) },
        parseBlockHeader,
        callOptions,
      );
      checkIdentity(id, header);
      return header;
    },
    getBlockTransactionCount: (id, callOptions) =>
      ask('starknet_getBlockTransactionCount', { block_id: blockId(id) }, readHeight, callOptions),
    l1Accepted: (knownHeight, callOptions) => findL1(node, knownHeight, callOptions),
    call: (request, at, callOptions) => rpc.call(functionCall(request, at), callOptions),
    getClassAt: (contract, at, callOptions) =>
      ask(
        'starknet_getClassAt',
        { block_id: blockId(at), contract_address: shortHex(contract) },
        readClass,
        callOptions,
      ),
    getClassHashAt: (contract, at, callOptions) =>
      ask(
        'starknet_getClassHashAt',
        { block_id: blockId(at), contract_address: shortHex(contract) },
        readFelt,
        callOptions,
      ),
    callMany: (requests, at, callOptions) =>
      rpc.batch(
        requests.map((request) => functionCall(request, at)),
        callOptions,
      ),
    close: () => rpc.close(),
  };
  return node;
}

function functionCall({ contract, selector, calldata }: FunctionCall, at: BlockId): RpcCall<Felt[]> {
  return {
    method: 'starknet_call',
    params: {
      request: {
        contract_address: shortHex(contract),
        entry_point_selector: shortHex(selector),
        calldata: calldata.map(shortHex),
      },
      block_id: blockId(at),
    },
    parse: readFelts,
  };
}

function blockId(id: BlockId): unknown {
  if (typeof id === 'string') return id;
  return typeof id === 'number' ? { block_number: id } : { block_hash: shortHex(id.hash) };
}

/** The specification's parameters have no leading zeros. */
function shortHex(felt: Felt): string {
  return `0x${felt.slice(2).replace(/^0+(?=.)/, '')}`;
}

/** A load balancer or cache in front of the node may answer with another block. */
function checkIdentity(id: BlockId, found: BlockPoint): void {
  const isRequested =
    typeof id === 'string' || (typeof id === 'number' ? found.height === id : found.hash === id.hash);
  if (!isRequested)
    throw invalidAnswer(`requested block ${JSON.stringify(id)}, answered with ${found.height} ${found.hash}`);
}
