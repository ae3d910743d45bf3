import type { SimBlock } from './blocks.ts';
import type { SimulatedChain } from './chain.ts';
import { createContracts, type Contracts } from './contracts.ts';
import { hexOf } from './hash.ts';
import { rpcErrors, type BlockId } from './protocol.ts';

/** The chain as the JSON-RPC methods read it. */
export type Ledger = {
  head(): number;
  l1(): number;
  /** Null: no block at this height, or above the head. */
  at(height: number): SimBlock | null;
  /** The pre-confirmed block on top of the head; null if there is none. */
  pending(): SimBlock | null;
  heightOf(hash: string): number | null;
  transaction(hash: string): { block: SimBlock; index: number } | null;
  contracts: Contracts;
};

/** The canonical chain; `fork` and `head` replace its fork and height. */
export function simulatedLedger(
  chain: SimulatedChain,
  { fork = chain.fork, head = chain.head }: { fork?: () => number; head?: () => number } = {},
): Ledger {
  return {
    head,
    l1: () => Math.min(chain.l1(), head()),
    at: (height) => (height < 0 || height > head() ? null : chain.block(height, fork())),
    pending: () => chain.block(head() + 1, fork()),
    heightOf(hash) {
      const found = chain.source.hashes.find(hexOf(BigInt(hash)));
      if (found === null || found.height > head()) return null;
      return chain.tree.governing(fork(), found.height) === found.fork ? found.height : null;
    },
    transaction: (hash) => chain.source.findTx(fork(), hash, head()),
    contracts: createContracts(chain, fork),
  };
}

/** The height of a block id, at most the head. */
export function heightOf(ledger: Ledger, id: BlockId): number {
  if (id === 'l1_accepted') return ledger.l1();
  if (typeof id === 'string') return ledger.head();
  const height = 'block_number' in id ? id.block_number : ledger.heightOf(id.block_hash);
  if (height === null || height > ledger.head()) throw rpcErrors.blockNotFound();
  return height;
}
