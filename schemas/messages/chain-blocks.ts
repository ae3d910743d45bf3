import { z } from 'zod';

import { isFelt } from '../felt.ts';
import { UINT, felt, height, tokenStandard, uint, unixSeconds } from './common.ts';

/** An event as the contract emitted it. Its position in the block is its index among the events of all transactions. */
export const rawEvent = z.object({ from_address: felt, keys: z.array(felt), data: z.array(felt) });
export type RawEvent = z.infer<typeof rawEvent>;

const FEE_UNITS = ['WEI', 'FRI'] as const;
const EXECUTION_STATUSES = ['SUCCEEDED', 'REVERTED'] as const;

export const blockTransaction = z.object({
  hash: felt,
  /** INVOKE, DECLARE, DEPLOY, DEPLOY_ACCOUNT, L1_HANDLER. */
  type: z.string(),
  /** null for types without a sender (DEPLOY, L1_HANDLER …). */
  sender_address: felt.nullable(),
  /** Actual fee, raw integer in `fee_unit`. */
  fee: uint,
  fee_unit: z.enum(FEE_UNITS),
  execution_status: z.enum(EXECUTION_STATUSES),
  events: z.array(rawEvent),
});
export type BlockTransaction = z.infer<typeof blockTransaction>;

/**
 * Transactions as `blockTransaction` has them, except that unknown fields stay. Nearly all of a message is transactions, so
 * they are checked by hand, which takes less than half the time; zod says what is wrong with those that are refused.
 */
const blockTransactions = z.custom<BlockTransaction[]>().check((context) => {
  if (isArrayOf(context.value, isTransaction)) return;
  const { error } = z.array(blockTransaction).safeParse(context.value);
  for (const { path, message } of error?.issues ?? [])
    context.issues.push({ code: 'custom', path, message, input: context.value });
});

function isArrayOf<T>(value: unknown, isElement: (element: unknown) => element is T): value is T[] {
  if (!Array.isArray(value)) return false;
  for (const element of value) if (!isElement(element)) return false;
  return true;
}

function isFields(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isTransaction(value: unknown): value is BlockTransaction {
  return (
    isFields(value) &&
    isFelt(value['hash']) &&
    typeof value['type'] === 'string' &&
    (value['sender_address'] === null || isFelt(value['sender_address'])) &&
    typeof value['fee'] === 'string' &&
    UINT.test(value['fee']) &&
    isOneOf(FEE_UNITS, value['fee_unit']) &&
    isOneOf(EXECUTION_STATUSES, value['execution_status']) &&
    isArrayOf(value['events'], isEvent)
  );
}

function isOneOf(words: readonly unknown[], value: unknown): boolean {
  return words.includes(value);
}

function isEvent(value: unknown): value is RawEvent {
  return (
    isFields(value) &&
    isFelt(value['from_address']) &&
    isArrayOf(value['keys'], isFelt) &&
    isArrayOf(value['data'], isFelt)
  );
}

/**
 * Whether the events of a block match the commitment in its header. `old_version`: it has another kind of commitment, from
 * before Starknet 0.13.2. `no_commitment`: the node does not give it. `mismatched`: they differ, on a node whose
 * commitments had never matched.
 */
export const eventCheck = z.enum(['verified', 'old_version', 'no_commitment', 'mismatched']);
export type EventCheck = z.infer<typeof eventCheck>;

const gasPrice = z.object({ price_in_wei: uint, price_in_fri: uint });

/** What the hash of a block commits to, besides the other fields of its body. */
export const blockHeader = z.object({
  new_root: felt,
  state_diff_length: z.int().min(0),
  l1_da_mode: z.enum(['BLOB', 'CALLDATA']),
  l1_gas_price: gasPrice,
  l1_data_gas_price: gasPrice,
  /** null if the node does not report it; part of the hash from Starknet 0.13.4 on. */
  l2_gas_price: gasPrice.nullable(),
  state_diff_commitment: felt,
  transaction_commitment: felt,
  event_commitment: felt,
  receipt_commitment: felt,
});
export type BlockHeader = z.infer<typeof blockHeader>;

/** A whole block as the node gave it: all transactions with all raw events. */
export const blockBody = z.object({
  height,
  hash: felt,
  parent_hash: felt,
  timestamp: unixSeconds,
  sequencer_address: felt,
  starknet_version: z.string(),
  /** Counts of the block header; null if the node does not report them (JSON-RPC before 0.10). */
  transaction_count: z.int().nullable(),
  event_count: z.int().nullable(),
  /** Absent: not checked, as in messages from before there was a check. */
  event_check: eventCheck.optional(),
  /** Absent if the node does not report all of it (JSON-RPC before 0.10), as in older messages. */
  header: blockHeader.optional(),
  transactions: blockTransactions,
});
export type BlockBody = z.infer<typeof blockBody>;

export const countEvents = ({ transactions }: Pick<BlockBody, 'transactions'>): number =>
  transactions.reduce((sum, { events }) => sum + events.length, 0);

/** Classification of each contract with a token-shaped event in the block, by address. */
export const contractFacts = z.object({ standard: tokenStandard, class_hash: felt.nullable() });
export const contractsMap = z.record(felt, contractFacts);
export type ContractFacts = z.infer<typeof contractFacts>;
export type ContractsMap = z.infer<typeof contractsMap>;

/** Equal for maps with the same facts, whatever the order of their contracts. */
export function contractsKey(map: ContractsMap): string {
  const entries = Object.entries(map).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify(entries.map(([contract, facts]) => [contract, facts.standard, facts.class_hash]));
}

/** `replay`: published again after a crash. `repair`: published again with corrected data; no webhook fires on it. */
export const blockCause = z.enum(['new', 'reorg', 'replay', 'repair']);
export type BlockCause = z.infer<typeof blockCause>;

/** Name of the open-ended chunk at the head of the chain. */
export const LIVE = 'live';

const blockFields = {
  v: z.literal(1),
  /** Version of every row made from this message; strictly increasing over the messages about a height. */
  seq: z.int().positive(),
  cause: blockCause,
  /** Chunk whose writer published the message. */
  chunk: z.string(),
  block: blockBody,
  contracts: contractsMap,
};

/** The block is now the canonical one at its height. */
export const blockAccepted = z.object({ type: z.literal('block.accepted'), ...blockFields });
/** The block is no longer canonical. Carries the body again, so that projectors can remove its rows without a look-up. */
export const blockReverted = z.object({ type: z.literal('block.reverted'), ...blockFields });

export const chainBlocksMessage = z.discriminatedUnion('type', [blockAccepted, blockReverted]);
export type BlockAccepted = z.infer<typeof blockAccepted>;
export type BlockReverted = z.infer<typeof blockReverted>;
export type ChainBlocksMessage = z.infer<typeof chainBlocksMessage>;
