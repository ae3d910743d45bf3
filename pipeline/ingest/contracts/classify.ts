import { AppError } from '../../../schemas/errors.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { ContractFacts } from '../../../schemas/messages/chain-blocks.ts';
import type { TokenStandard } from '../../../schemas/messages/common.ts';
import { SERVER_FAULTS, isContractError, isRpcError, rpcCodes } from '../../node/errors.ts';
import type { BlockId, BlockPoint, Node } from '../../node/types.ts';
import { classifyAbi } from './abi.ts';

/** The calls that classification makes. */
export type ClassifyingNode = Pick<Node, 'call' | 'getClassAt' | 'getClassHashAt'>;

export interface Classification extends ContractFacts {
  /** The evidence; `operator`: set by hand. */
  readonly basis: 'abi' | 'src5' | 'decimals' | 'nothing' | 'operator';
}

/** Result of classifying a class by its ABI, the same for every contract of the class. */
export type AbiVerdict = ReturnType<typeof classifyAbi>;

/** sn_keccak of the names, computed in test/unit/pipeline/ingest/contracts/classify.test.ts. */
const SELECTORS = {
  supports_interface: toFelt(0x00fe80f537b66d12a00b6d3c072b44afbb716e78dde5c3f0ef116ee93d3e3283n),
  supportsInterface: toFelt(0x029e211664c0b63c79638fbea474206ca74016b3e9a3dc4f9ac300ffd8bdf2cdn),
  decimals: toFelt(0x004c4fb1ab068f6039d5780c68dd0fa2f8742cceb3426d19667778ca7f3518a9n),
} as const;

/** Interface ids: SRC-5's (the XOR of the extended selectors), and EIP-165's, which Cairo 0 contracts use. */
const INTERFACES = {
  erc721: [toFelt(0x33eb2f84c309543403fd69f0d0f363781ef06ef6faeb0131ff16ea3175bd943n), toFelt(0x80ac58cdn)],
  erc1155: [toFelt(0x6114a8f75559e1b39fcba08ce02961a1aa082d9256a158dd3e64964e4b1b52n), toFelt(0xd9b67a26n)],
} as const;

/** Not an interface (EIP-165): a contract that claims to support it answers yes to everything. */
const NO_INTERFACE = toFelt(0xffffffffn);

/**
 * Determines a contract's standard: by the ABI of its class, else by SRC-5, else by the presence of `decimals`; `unknown`
 * if all calls were answered and none is conclusive. Reads the newest state if the node has pruned that of the block.
 *
 * @param abiOf caches the verdict per class
 * @throws a retryable `AppError` if a call failed for a reason other than the contract
 */
export async function classify(
  node: ClassifyingNode,
  contract: Felt,
  at: BlockPoint,
  abiOf: (classHash: Felt, fetch: () => Promise<AbiVerdict>) => Promise<AbiVerdict>,
): Promise<Classification> {
  const chain = readAt(node, at);
  const classHash = await chain.classHash(contract);
  if (classHash === null) return { standard: 'unknown', class_hash: null, basis: 'nothing' };
  const facts = (standard: TokenStandard, basis: Classification['basis']): Classification => ({
    standard,
    class_hash: classHash,
    basis,
  });
  const byAbi = await abiOf(classHash, () => chain.abiVerdict(contract));
  if (byAbi !== null) return facts(byAbi, 'abi');
  const bySrc5 = await classifyBySrc5(chain, contract);
  if (bySrc5 !== null) return facts(bySrc5, 'src5');
  const decimals = await chain.call(contract, SELECTORS.decimals, []);
  return decimals !== null && decimals.length > 0 ? facts('erc20', 'decimals') : facts('unknown', 'nothing');
}

async function classifyBySrc5(chain: ChainReader, contract: Felt): Promise<'erc721' | 'erc1155' | null> {
  for (const selector of [SELECTORS.supports_interface, SELECTORS.supportsInterface]) {
    const supports = async (id: Felt): Promise<boolean | null> => {
      const answer = await chain.call(contract, selector, [id]);
      return answer === null ? null : answer.length === 1 && BigInt(answer[0] ?? 0) === 1n;
    };
    // If the first call reverts, the entry point is taken to be missing.
    const first = await supports(INTERFACES.erc721[0]);
    if (first === null) continue;
    const isErc721 = first || (await supports(INTERFACES.erc721[1])) === true;
    const isErc1155 =
      (await supports(INTERFACES.erc1155[0])) === true || (await supports(INTERFACES.erc1155[1])) === true;
    if (isErc721 === isErc1155) continue;
    if ((await supports(NO_INTERFACE)) === true) continue;
    return isErc721 ? 'erc721' : 'erc1155';
  }
  return null;
}

/** Calls at one block; `null` where the contract or entry point does not exist, or the call reverts. */
interface ChainReader {
  classHash(contract: Felt): Promise<Felt | null>;
  abiVerdict(contract: Felt): Promise<AbiVerdict>;
  call(contract: Felt, selector: Felt, calldata: readonly Felt[]): Promise<readonly Felt[] | null>;
}

function readAt(node: ClassifyingNode, { hash }: BlockPoint): ChainReader {
  let block: BlockId = { hash };
  let isStateMissing = false;
  const read = async <T>(work: (block: BlockId) => Promise<T>): Promise<T | null> => {
    for (;;) {
      try {
        return await work(block);
      } catch (error) {
        // Without the state of the block, the contract may be newer than the newest block of that node: a load balancer has several.
        const isBehind = isStateMissing && isRpcError(error, rpcCodes.contractNotFound);
        if (isContractError(error) && !isBehind) return null;
        if (block === 'latest' || !mayBePruned(error)) throw asRetryable(error);
        block = 'latest';
        isStateMissing = true;
      }
    }
  };
  return {
    async classHash(contract) {
      const found = await read((id) => node.getClassHashAt(contract, id));
      if (found !== null || block === 'latest') return found;
      // The contract has an event in this block, so it exists: the node answered for another state.
      block = 'latest';
      return await read((id) => node.getClassHashAt(contract, id));
    },
    async abiVerdict(contract) {
      const found = await read((id) => node.getClassAt(contract, id));
      return found === null ? null : classifyAbi(found.abi);
    },
    call: (contract, selector, calldata) => read((id) => node.call({ contract, selector, calldata }, id)),
  };
}

/**
 * 24 is block not found, which nodes also return for a block that is orphaned or whose state is pruned. Some return a code
 * of their own. What fails for another reason fails for the newest state too.
 */
function mayBePruned(error: unknown): boolean {
  const isFromNode = error instanceof AppError && error.code === 'NODE_ERROR';
  return isFromNode && !isRpcError(error, ...SERVER_FAULTS);
}

/** Whatever the failure, the block waits until its contracts are classified. */
function asRetryable(error: unknown): unknown {
  if (!(error instanceof AppError) || error.retryable) return error;
  return new AppError(error.code, error.message, { retryable: true, cause: error, details: error.details });
}
