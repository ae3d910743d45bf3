import { z } from 'zod';

import { felt, height, tokenStandard, uint, unixSeconds } from './common.ts';

/** An event as the contract emitted it. Its position in the block is its index among the events of all transactions. */
export const rawEvent = z.object({ from_address: felt, keys: z.array(felt), data: z.array(felt) });
export type RawEvent = z.infer<typeof rawEvent>;

export const blockTransaction = z.object({
  hash: felt,
  /** INVOKE, DECLARE, DEPLOY, DEPLOY_ACCOUNT, L1_HANDLER. */
  type: z.string(),
  /** null for types without a sender (DEPLOY, L1_HANDLER …). */
  sender_address: felt.nullable(),
  /** Actual fee, raw integer in `fee_unit`. */
  fee: uint,
  fee_unit: z.enum(['WEI', 'FRI']),
  execution_status: z.enum(['SUCCEEDED', 'REVERTED']),
  events: z.array(rawEvent),
});
export type BlockTransaction = z.infer<typeof blockTransaction>;

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
  transactions: z.array(blockTransaction),
});
export type BlockBody = z.infer<typeof blockBody>;

/** Classification of each contract with a token-shaped event in the block, by address. */
export const contractFacts = z.object({ standard: tokenStandard, class_hash: felt.nullable() });
export const contractsMap = z.record(felt, contractFacts);
export type ContractFacts = z.infer<typeof contractFacts>;
export type ContractsMap = z.infer<typeof contractsMap>;

/** `replay`: published again after a crash. `repair`: published again with corrected data; no webhook fires on it. */
export const blockCause = z.enum(['new', 'reorg', 'replay', 'repair']);
export type BlockCause = z.infer<typeof blockCause>;

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
