import { selectors } from '../../schemas/decode/layouts.ts';
import { STRK_TOKEN, toFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { BlockBody, BlockTransaction, RawEvent } from '../../schemas/messages/chain-blocks.ts';
import type { TokenStandard } from '../../schemas/messages/common.ts';
import {
  ART,
  COIN,
  ITEMS,
  RIDDLE,
  SEQUENCER,
  batchEvent,
  madeUpHeader,
  makeBlock,
  transferEvent,
} from '../support/chain-messages.ts';
import type { Count } from './coverage.ts';
import type { Random } from '../support/random.ts';

/** The intended meaning of an event. The oracle uses it; the service decodes the event itself. */
export type Meaning =
  | { readonly kind: 'transfer'; readonly from: Felt; readonly to: Felt; readonly number: bigint }
  | {
      readonly kind: 'items';
      readonly from: Felt;
      readonly to: Felt;
      readonly items: readonly (readonly [bigint, bigint])[];
    }
  /** A transfer without a number: of amount 0, but malformed for an ERC-721. */
  | { readonly kind: 'numberless'; readonly from: Felt; readonly to: Felt }
  | { readonly kind: 'malformed' }
  | { readonly kind: 'nothing' };

interface SimTransaction {
  readonly body: BlockTransaction;
  readonly meanings: readonly Meaning[];
  /** The last event pays the fee. */
  readonly paysFee: boolean;
}

export interface SimBlock {
  readonly body: BlockBody;
  readonly transactions: readonly SimTransaction[];
}

/** A chain as a list of blocks, with its recent forks. */
export interface SimChain {
  /** Height of the first block. */
  readonly base: number;
  blocks(): readonly SimBlock[];
  at(height: number): SimBlock | undefined;
  head(): number;
  l1(): number;
  advance(count: number): void;
  /** Replaces up to `depth` blocks that are not accepted on L1 by `length` others. */
  reorg(depth: number, length: number): void;
  /** Returns to an earlier fork that includes the blocks accepted on L1, some blocks longer. */
  returnToFork(): void;
  acceptOnL1(height: number): void;
  /** Any earlier fork or the canonical chain, as a stale node may serve it. */
  former(): readonly SimBlock[];
}

/** Standards of all contracts but `COIN`, whose standard changes. */
export const fixedStandards: ReadonlyMap<Felt, TokenStandard> = new Map<Felt, TokenStandard>([
  [STRK_TOKEN, 'erc20'],
  [ART, 'erc721'],
  [ITEMS, 'erc1155'],
  [RIDDLE, 'unknown'],
]);

const accounts: readonly Felt[] = [0n, 1n, 2n, 3n, 5n, 8n, 13n].map((number) => toFelt(number));
const HALF = 1n << 128n;
const numbers: readonly bigint[] = [
  0n,
  1n,
  2n,
  7n,
  1000n,
  HALF - 1n,
  HALF,
  (1n << 255n) - 1n,
  (1n << 256n) - 1n,
];

export function createSimChain(random: Random, count: Count, base: number, length: number): SimChain {
  let salt = 0;
  let l1 = -1;
  let chain: SimBlock[] = [];
  let left: SimBlock[][] = [];
  /** Transactions of reverted blocks, which another block may include again. */
  let dropped: SimTransaction[] = [];
  let transactions = 0;

  const at = (height: number): SimBlock | undefined => chain[height - base];

  const makeEvent = (): [RawEvent, Meaning] => {
    const [from, to] = [random.pick(accounts), random.pick(accounts)];
    const number = random.pick(numbers);
    const transfer: Meaning = { kind: 'transfer', from, to, number };
    switch (random.below(9)) {
      case 0:
      case 1:
        return [transferEvent(COIN, from, to, number), transfer];
      case 2:
        return [transferEvent(ART, from, to, number), transfer];
      case 3: {
        const items = Array.from({ length: random.below(4) }, () => [random.pick(numbers), number] as const);
        return [
          batchEvent(
            ITEMS,
            from,
            to,
            items.map(([id, value]) => [id, value]),
          ),
          { kind: 'items', from, to, items },
        ];
      }
      case 4:
        return [transferEvent(RIDDLE, from, to, number), transfer];
      case 5:
        return [
          { from_address: COIN, keys: [selectors.Transfer, from, to], data: [] },
          { kind: 'numberless', from, to },
        ];
      case 6:
        return [
          { ...transferEvent(COIN, from, to, 1n), data: [toFelt(HALF), toFelt(0n)] },
          { kind: 'malformed' },
        ];
      case 7:
        return [transferEvent(STRK_TOKEN, from, to, number), transfer];
      default:
        return [{ from_address: COIN, keys: [toFelt(77n)], data: [from] }, { kind: 'nothing' }];
    }
  };

  const makeTransaction = (): SimTransaction => {
    transactions += 1;
    const events = Array.from({ length: random.below(4) }, makeEvent);
    const fee = BigInt(random.below(3));
    const hasFeeEvent = random.below(2) === 0;
    if (hasFeeEvent) {
      const from = random.pick(accounts);
      // Sometimes not the fee's amount: then it is an ordinary transfer to the sequencer.
      const number = random.below(6) === 0 ? fee + 1n : fee;
      events.push([
        transferEvent(STRK_TOKEN, from, SEQUENCER, number),
        { kind: 'transfer', from, to: SEQUENCER, number },
      ]);
    }
    const last = events.at(-1)?.[1];
    return {
      body: {
        hash: toFelt((0x7n << 96n) | BigInt(transactions)),
        type: 'INVOKE',
        sender_address: random.pick(accounts),
        fee: String(fee),
        fee_unit: 'FRI',
        execution_status: random.below(5) === 0 ? 'REVERTED' : 'SUCCEEDED',
        events: events.map(([event]) => event),
      },
      meanings: events.map(([, meaning]) => meaning),
      paysFee: hasFeeEvent && fee > 0n && last?.kind === 'transfer' && last.number === fee,
    };
  };

  const takeTransaction = (): SimTransaction => {
    const again = dropped.length > 0 && random.below(2) === 0 ? dropped.shift() : undefined;
    if (again !== undefined) count('transaction of a fork included again');
    return again ?? makeTransaction();
  };

  const grow = (more: number): void => {
    salt += 1;
    for (let index = 0; index < more; index += 1) {
      const own = Array.from({ length: random.pick([0, 1, 1, 2, 3]) }, takeTransaction);
      const body = makeBlock({
        height: base + chain.length,
        fork: salt,
        transactions: own.map((transaction) => transaction.body),
      });
      const parent = chain.at(-1)?.body.hash ?? toFelt(0n);
      // Some blocks are of a node that reports the whole header.
      const header = body.height % 2 === 0 ? { header: madeUpHeader } : {};
      chain.push({ body: { ...body, ...header, parent_hash: parent }, transactions: own });
    }
  };

  const leave = (keep: number): void => {
    left = [...left.slice(-5), [...chain]];
    const depth = chain.length - keep;
    count(depth > 20 ? 'reorg deeper than 20' : depth > 1 ? 'reorg of some blocks' : 'reorg of one block');
    dropped = chain.slice(keep).flatMap((block) => block.transactions);
    chain = chain.slice(0, keep);
  };
  grow(length);

  return {
    base,
    blocks: () => chain,
    at,
    head: () => base + chain.length - 1,
    l1: () => l1,
    advance: grow,
    reorg(depth, more) {
      const keep = Math.max(l1 < 0 ? 0 : l1 - base + 1, chain.length - depth);
      if (keep === chain.length) return;
      leave(keep);
      grow(more);
    },
    returnToFork() {
      const held = left.filter((one) => l1 < 0 || one[l1 - base]?.body.hash === at(l1)?.body.hash);
      const target = held[random.below(held.length)];
      if (target === undefined) return;
      count('return to an earlier fork');
      left = [...left.slice(-5), [...chain]];
      chain = [...target];
      dropped = [];
      grow(1 + random.below(3));
    },
    acceptOnL1(height) {
      if (height >= base) l1 = Math.max(l1, Math.min(height, base + chain.length - 1));
    },
    former: () => [...left, chain][random.below(left.length + 1)] ?? chain,
  };
}
