import { selectors } from '../../schemas/decode/layouts.ts';
import { STRK_TOKEN, toFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type {
  BlockAccepted,
  BlockBody,
  BlockHeader,
  BlockReverted,
  BlockTransaction,
  ContractsMap,
  RawEvent,
} from '../../schemas/messages/chain-blocks.ts';
import type { TokenStandard } from '../../schemas/messages/common.ts';

/** Builders of `chain.blocks` messages, so that a test can state their content. */

export const SEQUENCER = toFelt(0x5e90n);
/** An ERC-20, an ERC-721, an ERC-1155 and an unclassifiable contract. */
export const COIN = toFelt(0xc01n);
export const ART = toFelt(0xa47n);
export const ITEMS = toFelt(0x1155n);
export const RIDDLE = toFelt(0x41ddn);

const standards: readonly [Felt, TokenStandard][] = [
  [STRK_TOKEN, 'erc20'],
  [COIN, 'erc20'],
  [ART, 'erc721'],
  [ITEMS, 'erc1155'],
  [RIDDLE, 'unknown'],
];
const contracts: ContractsMap = Object.fromEntries(
  standards.map(([token, standard]) => [token, { standard, class_hash: null }]),
);

const half = (value: bigint): Felt => toFelt(value & ((1n << 128n) - 1n));

/** `Transfer` of an amount, or of a token id. */
export function transferEvent(token: Felt, from: Felt, to: Felt, number: bigint): RawEvent {
  return {
    from_address: token,
    keys: [selectors.Transfer, from, to],
    data: [half(number), half(number >> 128n)],
  };
}

/** `TransferBatch` of ERC-1155: pairs of id and value. */
export function batchEvent(token: Felt, from: Felt, to: Felt, pairs: readonly [bigint, bigint][]): RawEvent {
  const span = (values: readonly bigint[]): Felt[] => [
    toFelt(BigInt(values.length)),
    ...values.flatMap((value) => [half(value), half(value >> 128n)]),
  ];
  return {
    from_address: token,
    keys: [selectors.TransferBatch, from, from, to],
    data: [...span(pairs.map(([id]) => id)), ...span(pairs.map(([, value]) => value))],
  };
}

const price = { price_in_wei: '1', price_in_fri: '2' };

/** The header of a block with events, whose commitments are made up. */
export const madeUpHeader: BlockHeader = {
  new_root: toFelt(1n),
  state_diff_length: 3,
  l1_da_mode: 'BLOB',
  l1_gas_price: price,
  l1_data_gas_price: price,
  l2_gas_price: price,
  state_diff_commitment: toFelt(2n),
  transaction_commitment: toFelt(3n),
  event_commitment: toFelt(4n),
  receipt_commitment: toFelt(5n),
};

export interface BlockPlan {
  readonly height: number;
  /** Distinguishes blocks of one height. */
  readonly fork?: number;
  /** Fork of the parent block; default `fork`. */
  readonly parentFork?: number;
  readonly transactions: readonly (Partial<BlockTransaction> & { readonly events: RawEvent[] })[];
}

export function makeBlock({ height, fork = 0, parentFork = fork, transactions }: BlockPlan): BlockBody {
  const nameOf = (kind: bigint, of: number, at: number, index = 0): Felt =>
    toFelt((kind << 96n) | (BigInt(of) << 80n) | (BigInt(at) << 32n) | BigInt(index));
  const named = (kind: bigint, index = 0): Felt => nameOf(kind, fork, height, index);
  return {
    height,
    hash: named(0xbn),
    parent_hash: nameOf(0xbn, parentFork, Math.max(0, height - 1)),
    timestamp: 1_700_000_000 + 2 * height,
    sequencer_address: SEQUENCER,
    starknet_version: '0.14.0',
    transaction_count: transactions.length,
    event_count: transactions.reduce((sum, { events }) => sum + events.length, 0),
    transactions: transactions.map((transaction, index) => ({
      hash: named(0x7n, index),
      type: 'INVOKE',
      sender_address: toFelt(0x5e4den),
      fee: '0',
      fee_unit: 'FRI',
      execution_status: 'SUCCEEDED',
      ...transaction,
    })),
  };
}

export function accepted(block: BlockBody, seq: number, chunk = 'live'): BlockAccepted {
  return { type: 'block.accepted', v: 1, seq, cause: 'new', chunk, block, contracts };
}

export function reverted(block: BlockBody, seq: number, chunk = 'live'): BlockReverted {
  return { type: 'block.reverted', v: 1, seq, cause: 'reorg', chunk, block, contracts };
}

/** A block of many transactions, each with a transfer, its fee and an event that is not a token event. */
export function busyBlock(height: number, transactions: number, fork = 0): BlockBody {
  const account = (number: number): Felt => toFelt(0xacc0_0000n + BigInt(number));
  // A multiplicative hash spreads the accounts; few of some 50,000 accounts are in most transactions.
  const pick = (salt: number): number =>
    Math.imul(height * 65_537 + salt + fork * 7919, 2_654_435_761) % 25_000;
  return makeBlock({
    height,
    fork,
    transactions: Array.from({ length: transactions }, (_, index) => {
      const from = account(25_000 + pick(3 * index));
      const to = account(25_000 + pick(3 * index + 1));
      const token = index % 10 === 0 ? ART : COIN;
      const fee = 1_000_000_000_000n + BigInt(index);
      return {
        sender_address: from,
        fee: String(fee),
        events: [
          { from_address: RIDDLE, keys: [toFelt(0x123n)], data: [from, to] },
          transferEvent(token, from, to, BigInt(height) * 1_000_000n + BigInt(index)),
          transferEvent(STRK_TOKEN, from, SEQUENCER, fee),
        ],
      };
    }),
  });
}
