import { z } from 'zod';

import { felt, height, tokenStandard, uint, unixSeconds } from './common.ts';

/** One event as the chain emitted it. Its position in the block is its index in the flattened list of all events. */
export const rawEvent = z.object({ from_address: felt, keys: z.array(felt), data: z.array(felt) });
export type RawEvent = z.infer<typeof rawEvent>;

export const blockTransaction = z.object({
  hash: felt,
  /** INVOKE, DECLARE, DEPLOY, DEPLOY_ACCOUNT, L1_HANDLER. */
  type: z.string(),
  /** null where the type has none (DEPLOY, L1_HANDLER …). */
  sender_address: felt.nullable(),
  /** Actual fee, raw integer in `fee_unit`. */
  fee: uint,
  fee_unit: z.enum(['WEI', 'FRI']),
  execution_status: z.enum(['SUCCEEDED', 'REVERTED']),
  events: z.array(rawEvent),
});
export type BlockTransaction = z.infer<typeof blockTransaction>;

/** A whole block as the ingester took it from the node: every transaction, every event, raw. */
export const blockBody = z.object({
  height,
  hash: felt,
  parent_hash: felt,
  timestamp: unixSeconds,
  sequencer_address: felt,
  starknet_version: z.string(),
  /** The header's own counts; null where the node does not give them (JSON-RPC before 0.10). */
  transaction_count: z.int().nullable(),
  event_count: z.int().nullable(),
  transactions: z.array(blockTransaction),
});
export type BlockBody = z.infer<typeof blockBody>;

/** For each contract with a token-shaped event in the block: what it is. Keys are canonical felts. */
export const contractFacts = z.object({ standard: tokenStandard, class_hash: felt.nullable() });
export const contractsMap = z.record(felt, contractFacts);
export type ContractFacts = z.infer<typeof contractFacts>;
export type ContractsMap = z.infer<typeof contractsMap>;

/** `replay`: settled again after a crash. `repair`: published again with better knowledge; no webhook fires on it. */
export const blockCause = z.enum(['new', 'reorg', 'replay', 'repair']);
export type BlockCause = z.infer<typeof blockCause>;

const blockFields = {
  v: z.literal(1),
  /** Versions every row made from this message; grows for every message about a height, and no two share one. */
  seq: z.int().positive(),
  cause: blockCause,
  /** Name of the chunk whose writer published it. */
  chunk: z.string(),
  block: blockBody,
  contracts: contractsMap,
};

/** A block took its height. */
export const blockAccepted = z.object({ type: z.literal('block.accepted'), ...blockFields });
/** A block lost its height; the body again, so that a projector takes its rows back without looking anything up. */
export const blockReverted = z.object({ type: z.literal('block.reverted'), ...blockFields });

export const chainBlocksMessage = z.discriminatedUnion('type', [blockAccepted, blockReverted]);
export type BlockAccepted = z.infer<typeof blockAccepted>;
export type BlockReverted = z.infer<typeof blockReverted>;
export type ChainBlocksMessage = z.infer<typeof chainBlocksMessage>;
