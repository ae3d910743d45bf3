import type { IngestNode, Standards } from '../../pipeline/ingest/ports.ts';
import { RpcError, rpcCodes } from '../../pipeline/node/errors.ts';
import type { BlockHeader, BlockPoint } from '../../pipeline/node/types.ts';
import { toFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { BlockBody } from '../../schemas/messages/chain-blocks.ts';
import type { TokenStandard } from '../../schemas/messages/common.ts';
import type { SimBlock, SimChain } from './chain.ts';
import type { Count } from './coverage.ts';
import type { SimProcess, FaultRates } from './process.ts';
import type { Random } from '../support/random.ts';

interface NodeWorld {
  readonly chain: SimChain;
  readonly random: Random;
  readonly faultRates: FaultRates;
  readonly count: Count;
}

/** The node of one process, behind a load balancer: some answers are from a lagging node, or from one on another fork. */
export function createSimNode(
  { chain, random, faultRates, count }: NodeWorld,
  process: SimProcess,
): IngestNode {
  const view = (): readonly SimBlock[] => {
    if (!random.chance(faultRates.staleViews)) return chain.blocks();
    count('answer of a stale node');
    const former = chain.former();
    return former.slice(0, former.length - random.below(5));
  };
  /** Even a stale node shows no block as accepted on L1 that is not. */
  const isFinal = ({ height, hash }: BlockBody): boolean =>
    height <= chain.l1() && chain.at(height)?.body.hash === hash;
  const at = (id: unknown): BlockBody => {
    const seen = view();
    const block =
      id === 'latest'
        ? seen.at(-1)
        : id === 'l1_accepted'
          ? seen.findLast(({ body }) => isFinal(body))
          : seen[Number(id) - chain.base];
    if (block === undefined) throw new RpcError('block', rpcCodes.blockNotFound, 'Block not found', null);
    return block.body;
  };
  const header = (block: BlockBody): BlockHeader => ({
    height: block.height,
    hash: block.hash,
    parentHash: block.parent_hash,
    status: isFinal(block) ? 'ACCEPTED_ON_L1' : 'ACCEPTED_ON_L2',
    timestamp: block.timestamp,
    transactionCount: block.transaction_count,
  });
  const point = ({ height, hash }: BlockBody): BlockPoint => ({ height, hash });
  const ask = <T>(name: string, answer: () => T): Promise<T> =>
    process.call('node', name, async () => answer());

  return {
    chainId: () => ask('chainId', () => toFelt(0x534e5f53494dn)),
    specVersion: () => ask('specVersion', () => '0.10.0'),
    blockHashAndNumber: () => ask('head', () => point(at('latest'))),
    getBlockHeader: (id) => ask('header', () => header(at(id))),
    getBlockWithReceipts: (id) =>
      ask('block', () => {
        const body = at(id);
        const isIncomplete = faultRates.short > 0 && !isFinal(body) && random.chance(faultRates.short);
        if (isIncomplete) count('incomplete block');
        return {
          body: isIncomplete ? withoutLastEvent(body) : body,
          status: header(body).status,
          eventCommitment: null,
          bytes: 500,
        };
      }),
    l1Accepted: () => ask('l1', () => (chain.l1() < 0 ? null : point(at('l1_accepted')))),
  };
}

/** Without its last event. */
function withoutLastEvent(body: BlockBody): BlockBody {
  const last = body.transactions.findLastIndex(({ events }) => events.length > 0);
  const transactions = body.transactions.map((transaction, index) =>
    index === last ? { ...transaction, events: transaction.events.slice(0, -1) } : transaction,
  );
  return { ...body, transactions };
}

/** The current standards of contracts. */
export function createSimStandards(
  standardOf: (contract: Felt) => TokenStandard,
  process: SimProcess,
): Pick<Standards, 'resolve'> {
  return {
    resolve: (contracts) =>
      process.call('node', 'standards', async () => {
        return new Map(
          contracts.map((contract) => [contract, { standard: standardOf(contract), class_hash: null }]),
        );
      }),
  };
}
