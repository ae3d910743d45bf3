import type { TransactionDetails } from '../../schemas/commitment/transactions.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { BlockBody } from '../../schemas/messages/chain-blocks.ts';

/** A height, a hash, or a tag of a finished block. */
export type BlockId = number | { readonly hash: Felt } | 'latest' | 'l1_accepted';

/** Pending and pre-confirmed blocks are rejected. */
export type BlockStatus = 'ACCEPTED_ON_L2' | 'ACCEPTED_ON_L1';

export interface BlockPoint {
  readonly height: number;
  readonly hash: Felt;
}

export interface BlockHeader extends BlockPoint {
  readonly parentHash: Felt;
  readonly status: BlockStatus;
  readonly timestamp: number;
  /** The header's count; null before specification 0.10. */
  readonly transactionCount: number | null;
}

/** One answer of `starknet_getBlockWithReceipts`, checked against the counts in its header. */
export interface FetchedBlock {
  readonly body: BlockBody;
  readonly status: BlockStatus;
  /** The root of its events in the header, not compared with the body; null before specification 0.10. */
  readonly eventCommitment: Felt | null;
  /**
   * What the block commits to of its transactions and the log leaves out, read from the answer when asked for: it keeps the
   * answer in memory. Absent once it was compared.
   */
  readonly details?: () => readonly TransactionDetails[];
  /** False: the header does not have the hash of the block, as those of other blocks do. Absent: not compared. */
  readonly isBound?: boolean;
  /** Size of the answer on the wire, which bounds prefetching. */
  readonly bytes: number;
}

export interface FunctionCall {
  readonly contract: Felt;
  readonly selector: Felt;
  readonly calldata: readonly Felt[];
}

export interface ContractClass {
  /** The ABI entries that the class declares; empty if it has no readable ABI. Untrusted. */
  readonly abi: readonly unknown[];
}

export interface CallOptions {
  readonly signal?: AbortSignal;
  /** Queued calls of higher priority go first. Default 0. */
  readonly priority?: number;
  /** Compares the block whatever the settings leave out. */
  readonly isSuspect?: boolean;
}

/** The result or error of one call of a batch. */
export type CallOutcome<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: Error };

/** The methods of a Starknet node that the service uses. Answers are parsed and normalised; errors are `AppError`s. */
export interface Node {
  chainId(options?: CallOptions): Promise<Felt>;
  specVersion(options?: CallOptions): Promise<string>;
  /** The newest block; null on a chain without blocks. */
  blockHashAndNumber(options?: CallOptions): Promise<BlockPoint | null>;
  /** Throws `BLOCK_INCOMPLETE` (retryable) if the body does not match the counts in its header. */
  getBlockWithReceipts(id: BlockId, options?: CallOptions): Promise<FetchedBlock>;
  getBlockHeader(id: BlockId, options?: CallOptions): Promise<BlockHeader>;
  getBlockTransactionCount(id: BlockId, options?: CallOptions): Promise<number>;
  /**
   * The newest block accepted on L1; null if there is none. Without the tag, searches the blocks between `knownHeight`
   * (already accepted) and the head by status.
   */
  l1Accepted(knownHeight: number | null, options?: CallOptions): Promise<BlockPoint | null>;
  call(request: FunctionCall, at: BlockId, options?: CallOptions): Promise<Felt[]>;
  getClassAt(contract: Felt, at: BlockId, options?: CallOptions): Promise<ContractClass>;
  getClassHashAt(contract: Felt, at: BlockId, options?: CallOptions): Promise<Felt>;
  /** One request for many calls, each with its own outcome. */
  callMany(
    requests: readonly FunctionCall[],
    at: BlockId,
    options?: CallOptions,
  ): Promise<CallOutcome<Felt[]>[]>;
  close(): Promise<void>;
}
