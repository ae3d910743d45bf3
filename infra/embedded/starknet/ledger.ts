import type { SimBlock } from './blocks.ts';
import { createContracts, type Contracts } from './calls.ts';
import type { SimulatedChain } from './chain.ts';

/** What the JSON-RPC methods need of a chain: simulated, recorded or prepared. */
export type Ledger = {
  head(): number;
  l1(): number;
  /** Null: no such height, above the head, or not recorded. */
  at(height: number): SimBlock | null;
  /** The block being made on top of the head; null where there is none. */
  pending(): SimBlock | null;
  heightOf(hash: string): number | null;
  transaction(hash: string): { block: SimBlock; index: number } | null;
  contracts: Contracts;
  /** A block's ready `getBlockWithReceipts` result, where it has been prepared. */
  prepared?(height: number): Promise<Buffer | null>;
};

/** A fork of the simulated chain as a ledger; without a fork, the one in force at each call. */
export function simulatedLedger(chain: SimulatedChain, fork: number | null = null): Ledger {
  const forkNow = () => fork ?? chain.fork();
  const head = () => chain.servedHead();
  return {
    head,
    l1: () => Math.min(chain.l1(), head()),
    at: (height) => (height < 0 || height > head() ? null : chain.block(height, forkNow())),
    pending: () => chain.block(head() + 1, forkNow()),
    heightOf(hash) {
      const found = chain.source.findBlock(hash);
      if (found === null || found.height > head()) return null;
      return chain.tree.governing(forkNow(), found.height) === found.fork ? found.height : null;
    },
    transaction: (hash) => chain.source.findTx(forkNow(), hash, head()),
    contracts: createContracts(chain, forkNow),
  };
}
