import type { Felt } from '../../schemas/felt.ts';
import type { BlockBody } from '../../schemas/messages/chain-blocks.ts';

/** A height, a hash, or a tag that names a finished block. */
export type BlockId = number | { readonly hash: Felt } | 'latest' | 'l1_accepted';

/** Finished blocks only: a pending or pre-confirmed answer is refused. */
export type BlockStatus = 'ACCEPTED_ON_L2' | 'ACCEPTED_ON_L1';

export interface BlockPoint {
  readonly height: number;
  readonly hash: Felt;
}

export interface BlockHeader extends BlockPoint {
  readonly parentHash: Felt;
  readonly status: BlockStatus;
  readonly timestamp: number;
  /** The header's own count; null before specification 0.10. */
  readonly transactionCount: number | null;
}

/** One answer of `starknet_getBlockWithReceipts`, whole and checked against its own counts. */
export interface FetchedBlock {
  readonly body: BlockBody;
  readonly status: BlockStatus;
  /** Size of the answer on the wire: what prefetching is bounded by. */
  readonly bytes: number;
}

export interface FunctionCall {
  readonly contract: Felt;
  readonly selector: Felt;
  readonly calldata: readonly Felt[];
}

export interface ContractClass {
  /** The ABI's entries as the class declares them; empty when it has none that can be read. Untrusted. */
  readonly abi: readonly unknown[];
}

export interface CallOptions {
  readonly signal?: AbortSignal;
  /** Calls of higher priority overtake those that wait for a place; 0 unless told. */
  readonly priority?: number;
}

/** The value, or the error the node gave for this one call of a batch. */
export type Outcome<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: Error };

/** What the service asks of a Starknet node. Every answer is parsed and normalised; errors are `AppError`s. */
export interface Node {
  chainId(options?: CallOptions): Promise<Felt>;
  specVersion(options?: CallOptions): Promise<string>;
  blockNumber(options?: CallOptions): Promise<number>;
  /** The newest finished block; null on a chain without one. */
  blockHashAndNumber(options?: CallOptions): Promise<BlockPoint | null>;
  /** Throws `BLOCK_INCOMPLETE` (retryable) when the body does not hold what its header counts. */
  getBlockWithReceipts(id: BlockId, options?: CallOptions): Promise<FetchedBlock>;
  getBlockHeader(id: BlockId, options?: CallOptions): Promise<BlockHeader>;
  getBlockTransactionCount(id: BlockId, options?: CallOptions): Promise<number>;
  /**
   * The newest block accepted on L1; null when there is none. Nodes without the tag are asked for the status of blocks
   * between `known` (accepted before) and the head.
   */
  l1Accepted(known: number | null, options?: CallOptions): Promise<BlockPoint | null>;
  call(request: FunctionCall, at: BlockId, options?: CallOptions): Promise<Felt[]>;
  getClassAt(contract: Felt, at: BlockId, options?: CallOptions): Promise<ContractClass>;
  getClassHashAt(contract: Felt, at: BlockId, options?: CallOptions): Promise<Felt>;
  /** One request for many; each has an outcome of its own. */
  callMany(requests: readonly FunctionCall[], at: BlockId, options?: CallOptions): Promise<Outcome<Felt[]>[]>;
  getClassHashesAt(contracts: readonly Felt[], at: BlockId, options?: CallOptions): Promise<Outcome<Felt>[]>;
  close(): Promise<void>;
}
