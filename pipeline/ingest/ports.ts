import type { Clock } from '../../infra/clock.ts';
import type { Publisher } from '../../infra/kafka/client.ts';
import type { Logger } from '../../infra/log.ts';
import { AppError } from '../../schemas/errors.ts';
import type { Felt } from '../../schemas/felt.ts';
import type {
  BlockBody,
  ChainBlocksMessage,
  ContractFacts,
  ContractsMap,
} from '../../schemas/messages/chain-blocks.ts';
import type { SubscribeToHeads } from '../node/head-subscription.ts';
import type { BlockPoint, CallOptions, Node } from '../node/types.ts';
import type { CommitmentChecks } from './commitments.ts';
import type { IngestMetrics } from './metrics.ts';

/*
 * Everything the ingester depends on, time and randomness included, so that the same code runs against real stores and in
 * a seeded simulation.
 *
 * Terms. Chunk: a named range of heights with a cursor. Lease: the exclusive right to write one chunk, fenced by its epoch.
 * Recorded block: one stored in PostgreSQL before it is published. Final: accepted on L1, so it cannot be reverted.
 * Contracts map: the token standard of each contract with an event in a block, published with the block.
 */

export interface IngestDeps {
  readonly node: IngestNode;
  /** null: the node's head is only polled. */
  readonly subscribeToHeads: SubscribeToHeads | null;
  readonly store: IngestStore;
  readonly publisher: Pick<Publisher, 'publish'>;
  /** Receives the published and reverted blocks. */
  readonly checks: Pick<CommitmentChecks, 'published' | 'reverted'>;
  readonly standards: Pick<Standards, 'resolve'>;
  /** Called once per round of repairs: the reader has read the log at least up to its end at that moment. */
  readonly createBlockReader: (signal: AbortSignal) => ReadPublishedBlock;
  readonly blockLog: BlockLog;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: IngestMetrics;
  readonly settings: IngestSettings;
}

export interface IngestSettings {
  /** null: the height accepted on L1 at the first start. */
  readonly indexFrom: number | null;
  readonly backfillChunkBlocks: number;
  readonly backfillConcurrency: number;
  readonly prefetchBytes: number;
  /** Concurrent block requests of one chunk. */
  readonly prefetchConcurrency: number;
  readonly headPollMs: number;
  readonly l1PollMs: number;
  readonly stallMs: number;
  /** After so long without another head of the node an alarm is raised; 0: never. */
  readonly headStallMs: number;
  readonly leaseMs: number;
  /** Identifies this process as the holder of a lease. */
  readonly holder: string;
}

export type IngestNode = Pick<
  Node,
  'chainId' | 'specVersion' | 'blockHashAndNumber' | 'getBlockWithReceipts' | 'getBlockHeader' | 'l1Accepted'
>;

/** Token standards of contracts, determined from the chain and stored. */
export interface Standards {
  /**
   * Returns the standard of each contract, asking the chain only for those that are not stored yet. Concurrent calls share
   * one look-up per contract. Queued look-ups and calls of higher priority go first.
   *
   * @throws a retryable error if the chain did not answer for one of them; the others are stored
   */
  resolve(
    contracts: readonly Felt[],
    at: BlockPoint,
    options?: Pick<CallOptions, 'priority'>,
  ): Promise<ReadonlyMap<Felt, ContractFacts>>;
  /** Asks the chain again and stores the answer. Other processes use it within `STANDARDS_TTL_MS`. */
  reclassify(contract: Felt, at: BlockPoint): Promise<{ before: ContractFacts | null; after: ContractFacts }>;
}

export interface PublishedBlock {
  readonly block: BlockBody;
  readonly contracts: ContractsMap;
}

/**
 * Reads the newest `block.accepted` of a height from the log; null if the projections have no block there. Throws a
 * retryable error while the projections lag, because the offset they know may be of a replaced block.
 */
export type ReadPublishedBlock = (height: number) => Promise<PublishedBlock | null>;

/** Where a message lies in `chain.blocks`. */
export interface LogPlace {
  readonly partition: number;
  readonly offset: number;
}

export interface LoggedMessage extends LogPlace {
  readonly message: ChainBlocksMessage;
}

/** The log of blocks itself, independent of the projections. */
export interface BlockLog {
  /**
   * Messages about a range of heights (`end` null: no upper bound) that were appended at a time (unix milliseconds) or
   * later, up to the end of the log at the call. In order for each height.
   */
  messagesSince(
    since: number,
    range: { readonly start: number; readonly end: number | null },
    signal?: AbortSignal,
  ): AsyncIterable<LoggedMessage>;
  /** The next offset of each partition. */
  ends(): Promise<number[]>;
  /** The blocks of messages, in the order of the places. */
  blocksAt(places: readonly LogPlace[], signal: AbortSignal): Promise<PublishedBlock[]>;
}

export interface Chunk {
  readonly name: string;
  readonly start: number;
  /** null: open-ended. */
  readonly end: number | null;
  /** The next height to index. */
  readonly cursor: number;
  readonly finalHeight: number;
  readonly finalHash: Felt | null;
  readonly firstParent: Felt | null;
  readonly finished: boolean;
  readonly opened: boolean;
  readonly plan: StoredPlan;
  /** Unix milliseconds of the last move of the cursor, by PostgreSQL's clock. */
  readonly updatedAt: number;
  /** null: none, or expired. `until`: unix milliseconds by PostgreSQL's clock; every renewal moves it. */
  readonly lease: { readonly holder: string; readonly until: number } | null;
}

/**
 * Blocks from the cursor up to `to` that are not recorded may be in the log with these facts. A retry publishes them with
 * the same facts, whatever was learned since, because projected rows depend on them.
 */
export interface StoredPlan {
  readonly to: number;
  readonly facts: ContractsMap;
}

export interface NewChunk extends Pick<Chunk, 'name' | 'start' | 'end'> {
  /** Hash of block `start - 1` if it is known to be accepted on L1. */
  readonly finalHash: Felt | null;
}

/** Identifies a lease in every fenced write. */
export interface Fence {
  readonly name: string;
  readonly epoch: number;
}

export interface LeaseGrant {
  readonly chunk: Chunk;
  readonly epoch: number;
  /** The first seq this holder may use; it has reserved all up to `seqCeiling`. */
  readonly seq: number;
  readonly seqCeiling: number;
}

/** The exclusive right to write one chunk, renewed in the background until it is released or lost. */
export interface Lease extends Fence {
  readonly seq: Seq;
  /** The chunk as it was when the lease was acquired. */
  readonly chunk: Chunk;
  /** Aborted when the lease is lost, aborted or released. */
  readonly signal: AbortSignal;
  /** Throws `LEASE_LOST` once the lease may have expired. Called before every publish, because Kafka checks no epochs. */
  assertValid(): void;
  /** Stops the work under the lease; the lease lasts until `release`. */
  abort(): void;
  /** Lets another process acquire it at once. Called only after all work under it has ended. */
  release(): Promise<void>;
}

export interface Seq {
  /** For accepted blocks: above every revert so far, and unchanged between reverts. */
  forAccept(): Promise<number>;
  /** For reverted blocks: above every seq used so far. */
  forRevert(): Promise<number>;
  /** A message in the log has this seq: all from now on are above it. */
  exceed(seq: number): void;
}

/** One lease's work on a chunk, as the backfill and live loops see it. */
export interface ChunkTask {
  readonly lease: Lease;
  /** Runs due repairs of this chunk. True if there were any: prefetched blocks may carry outdated contract facts then. */
  runRepairs(): Promise<boolean>;
  /** True when the loop is to end, so that the stored state is compared with the log again. */
  isReconcileDue(): boolean;
  /** Blocks up to this height replace reverted ones. Outlives the loop, which may begin again within a reorg. */
  readonly replaced: { top: number };
  /** The head of the node that was published last, and when. Outlives the loop, so that no retry publishes it again. */
  readonly publishedHead: { head: BlockPoint | null; at: number };
  /** Reports a successful step, or that there is nothing to do. */
  progress(): Promise<void>;
  /** Reports why there is no progress, though nothing has failed. */
  readonly waiting: (waitsFor: string) => void;
  /** Reports the head that the node has answered (null: it has no block), and the highest indexed height; -1: none. */
  readonly headSeen: (head: BlockPoint | null, indexed: number) => Promise<void>;
  /** Reports a request for the height accepted on L1; null: the node answered. Never rejects. */
  readonly l1Requested: (failure: unknown) => Promise<void>;
  /** Called when blocks are to be reverted: the head of the chain may be lower than before. */
  readonly forgetHead: () => void;
}

export interface RecordedHeader {
  readonly height: number;
  readonly hash: Felt;
  readonly parentHash: Felt;
  readonly intent: 'accept' | 'revert';
}

export interface RecordedBlock {
  readonly body: BlockBody;
  /** Every contracts map the block may have been published with; the last one is current. */
  readonly maps: readonly ContractsMap[];
  /** Other bodies that an interrupted repair may have published for this block. */
  readonly rereads?: readonly BlockBody[];
}

export interface CursorMove {
  readonly from: number;
  readonly to: number;
  /** The new final block if the blocks were final when published, and so were not recorded. */
  readonly final: BlockPoint | null;
  /** Parent hash of the first block in the move. */
  readonly firstParent: Felt;
}

export interface Repair {
  readonly id: number;
  readonly height: number;
  /** Number of requests when it was read. A request made since then keeps the repair pending. */
  readonly round: number;
  /** The block in the log is missing or incomplete: fetch it from the node again. */
  readonly reread?: boolean;
  /** The block replaces an orphan that an operator has reverted: published as by a reorg, so that webhooks are notified. */
  readonly replacesOrphan?: boolean;
}

/**
 * The ingester's state. Each method is one transaction. A write under a `Fence` whose epoch has ended throws `LEASE_LOST`
 * and changes nothing; so does one after a fail-over of PostgreSQL that has lost an earlier write of this process under the
 * same fence.
 */
export interface IngestStore {
  /** Stores the chain id unless one is stored; returns the stored one. */
  storeChainId(chainId: Felt): Promise<Felt>;
  announcedCapabilities(): Promise<unknown>;
  setAnnouncedCapabilities(capabilities: unknown): Promise<void>;

  chunks(): Promise<Chunk[]>;
  /** Adds all of them or none: false if one overlaps an existing chunk (another process created it). */
  createChunks(chunks: readonly NewChunk[]): Promise<boolean>;
  markOpened(name: string): Promise<void>;

  /**
   * null while another holder has the lease, unless it is taken over. Reserves `reserve` seqs from max(stored + 1, nowMs) up. The
   * epoch is chosen in the same way, so that no epoch of a lease that PostgreSQL has lost is granted again.
   */
  acquire(request: {
    name: string;
    holder: string;
    ttlMs: number;
    nowMs: number;
    reserve: number;
    takeOver?: boolean;
  }): Promise<LeaseGrant | null>;
  renew(fence: Fence, ttlMs: number): Promise<void>;
  release(fence: Fence): Promise<void>;
  /** Reserves every seq up to `ceiling`. */
  reserveSeq(fence: Fence, ceiling: number): Promise<void>;

  chunk(fence: Fence): Promise<Chunk>;
  /** Called before blocks are published that are not recorded. */
  plan(fence: Fence, plan: StoredPlan): Promise<void>;
  /** Compare-and-set on the cursor. */
  moveCursor(fence: Fence, move: CursorMove): Promise<void>;
  finish(fence: Fence): Promise<void>;

  /** Headers of all recorded blocks, lowest first: one per height, without a gap. */
  recordedHeaders(fence: Fence): Promise<RecordedHeader[]>;
  recordedBlocks(name: string, from: number, to: number): Promise<RecordedBlock[]>;
  record(fence: Fence, blocks: readonly RecordedBlock[]): Promise<void>;
  /** Marks all recorded blocks above `fork` for revert and lowers the cursor to at most `fork + 1`. */
  markForRevert(fence: Fence, fork: number): Promise<void>;
  /** Deletes blocks from this height up whose reverts Kafka has acknowledged. */
  deleteReverted(fence: Fence, from: number): Promise<void>;
  /** Stores the highest final block, and deletes the recorded blocks up to it. */
  setFinal(fence: Fence, point: BlockPoint): Promise<void>;

  /** Due repairs of a range of heights (`end` null: no upper bound), longest overdue first. */
  pendingRepairs(
    range: { readonly start: number; readonly end: number | null },
    limit: number,
  ): Promise<Repair[]>;
  /** Names of the finished chunks that have a due repair. */
  finishedChunksToRepair(): Promise<string[]>;
  /** Schedules the next attempt with exponential backoff, unless the repair was requested again meanwhile. */
  postponeRepair(fence: Fence, repair: Repair): Promise<void>;
  /** Every contracts map that repairs of this height may have published. */
  repairMaps(height: number): Promise<ContractsMap[]>;
  /** Stores what a repair is about to publish: its contracts map, and the body if it was fetched again. */
  planRepair(fence: Fence, repair: Repair, map: ContractsMap, body?: BlockBody): Promise<void>;
  /** Makes the map (and the body) current and closes the repair; map null: nothing needed repair. */
  finishRepair(fence: Fence, repair: Repair, map: ContractsMap | null, body?: BlockBody): Promise<void>;

  /** With a fence whose epoch has ended neither changes anything: alarms belong to the current lease holder. */
  raiseAlarm(name: string, detail: string, fence?: Fence): Promise<void>;
  /** A name that ends with a colon stands for every alarm whose name begins with it. */
  clearAlarms(names: readonly string[], fence?: Fence): Promise<void>;
}

export function leaseLost({ name, epoch }: Fence): AppError {
  return new AppError(
    'LEASE_LOST',
    `${name}: lease epoch ${epoch} has ended, or the stored chunk has changed since this process wrote it`,
  );
}
