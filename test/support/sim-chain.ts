import type { BlockHeader, BlockPoint } from '../../pipeline/node/types.ts';
import { toFelt } from '../../schemas/felt.ts';
import type { BlockBody } from '../../schemas/messages/chain-blocks.ts';
import { COIN, makeBlock, transferEvent } from './chain-messages.ts';

/** A chain that is only a list of blocks, with every fork it ever had. */
export interface SimChain {
  blocks(): readonly BlockBody[];
  l1(): number;
  advance(count: number): void;
  /** Takes blocks off (never those accepted on L1) and puts others on. */
  reorg(depth: number, length: number): void;
  /** Goes back to a chain that was left, if it still holds what is accepted on L1; some blocks longer. */
  goBack(pick: (count: number) => number): void;
  acceptOnL1(height: number): void;
  /** Any chain that was left or is in force: what a node behind the times may serve. */
  former(pick: (count: number) => number): readonly BlockBody[];
}

export function createSimChain(length: number): SimChain {
  let salt = 0;
  let l1 = -1;
  let chain: BlockBody[] = [];
  let left: BlockBody[][] = [];

  const grow = (count: number): void => {
    salt += 1;
    for (let index = 0; index < count; index += 1) {
      const height = chain.length;
      const account = toFelt(BigInt(height + 1));
      const good = transferEvent(COIN, account, toFelt(9n), BigInt(salt));
      // A half of 2^128 or more can be no amount.
      const bad = { ...good, data: [toFelt(1n << 130n), toFelt(0n)] };
      const events = height % 5 === 0 ? [good, bad] : height % 3 === 0 ? [] : [good];
      const block = makeBlock({ height, fork: salt, transactions: [{ events }] });
      chain.push({ ...block, parent_hash: chain.at(-1)?.hash ?? toFelt(0n) });
    }
  };
  grow(length);

  return {
    blocks: () => chain,
    l1: () => l1,
    advance: grow,
    reorg(depth, count) {
      const keep = Math.max(l1 + 1, chain.length - depth);
      if (keep === chain.length) return;
      left = [...left.slice(-5), [...chain]];
      chain = chain.slice(0, keep);
      grow(count);
    },
    goBack(pick) {
      const held = left.filter((one) => one.length > l1 && (l1 < 0 || one[l1]?.hash === chain[l1]?.hash));
      const target = held[pick(held.length)];
      if (target === undefined) return;
      left = [...left.slice(-5), [...chain]];
      chain = [...target];
      grow(1 + pick(3));
    },
    acceptOnL1(height) {
      l1 = Math.max(l1, Math.min(height, chain.length - 1));
    },
    former: (pick) => [...left, chain][pick(left.length + 1)] ?? chain,
  };
}

export function headerOf(block: BlockBody, isFinal: (block: BlockBody) => boolean): BlockHeader {
  return {
    height: block.height,
    hash: block.hash,
    parentHash: block.parent_hash,
    status: isFinal(block) ? 'ACCEPTED_ON_L1' : 'ACCEPTED_ON_L2',
    timestamp: block.timestamp,
    transactionCount: block.transaction_count,
  };
}

export function pointOf(block: BlockBody): BlockPoint {
  return { height: block.height, hash: block.hash };
}
