import type { Clock } from '../../infra/clock.ts';
import type { Logger } from '../../infra/log.ts';
import type { Publisher } from '../../infra/kafka/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { BlockBody, ContractFacts, ContractsMap } from '../../schemas/messages/chain-blocks.ts';
import type { BlockPoint, Node } from '../node/types.ts';
import type { IngestMetrics } from './metrics.ts';

/*
 * What the ingester rests on. It reaches the world through these alone, time and chance included, so that the very same
 * code runs against real stores and in a seeded simulation.
 *
 * Words: a chunk is a named range of heights with a cursor; a lease is the right to write one, fenced by its epoch;
 * a recorded block is one written down before it is published; to settle is to find out what became of it.
 */

export type IngestNode = Pick<
  Node,
  'chainId' | 'specVersion' | 'blockHashAndNumber' | 'getBlockWithReceipts' | 'getBlockHeader' | 'l1Accepted'
>;

/** Tells of each contract which standard it is, from the chain; throws (retryable) when the chain cannot be asked. */
export interface Standards {
  resolve(contracts: readonly Felt[], at: BlockPoint): Promise<ReadonlyMap<Felt, ContractFacts>>;
}

export interface PublishedBlock {
  readonly block: BlockBody;
  readonly contracts: ContractsMap;
}

/**
 * The newest accepted message about a height, as the log has it; null where the projections do not know one. Throws
 * (retryable) while they are behind: what they know may have been replaced.
 */
export type ReadPublishedBlock = (height: number) => Promise<PublishedBlock | null>;

export interface Chunk {
  readonly name: string;
  readonly start: number;
  /** null: open-ended. */
  readonly end: number | null;
  readonly cursor: number;
  readonly finalHeight: number;
  readonly finalHash: Felt | null;
  readonly firstParent: Felt | null;
  readonly finished: boolean;
  readonly opened: boolean;
  readonly plan: Plan;
}

/**
 * Blocks that are not recorded, from the cursor up to a height, may be in the log with these facts about contracts. They
 * are published with the very same again, whatever was learned since: rows depend on them.
 */
export interface Plan {
  readonly to: number;
  readonly facts: ContractsMap;
}

export interface NewChunk {
  readonly name: string;
  readonly start: number;
  readonly end: number | null;
  /** Hash at `start - 1`, where it is known to be accepted on L1. */
  readonly finalHash: Felt | null;
}

export interface LeaseGrant {
  readonly chunk: Chunk;
  readonly epoch: number;
  /** The first seq this holder may use; those up to `seqCeiling` are reserved for it. */
  readonly seq: number;
  readonly seqCeiling: number;
}

/** Names a lease in every fenced write. */
export interface Fence {
  readonly name: string;
  readonly epoch: number;
}

export interface RecordedHeader {
  readonly height: number;
  readonly hash: Felt;
  readonly parentHash: Felt;
  readonly intent: 'accept' | 'revert';
}

export interface RecordedBlock {
  readonly body: BlockBody;
  /** Every map the block may have been published with; the last is in force. */
  readonly maps: readonly ContractsMap[];
  /** Other bodies that a repair may have published of it: one that was cut short. */
  readonly rereads?: readonly BlockBody[];
}

export interface CursorMove {
  readonly from: number;
  readonly to: number;
  /** Moves along with the cursor where the blocks are final (and were not recorded). */
  readonly final: BlockPoint | null;
  /** Parent hash of the first block moved over. */
  readonly firstParent: Felt;
}

export interface Repair {
  readonly id: number;
  readonly height: number;
  /** How often it was asked for when it was read: asked for once more, it stays pending. */
  readonly round: number;
  /** What the log has of the block is missing or short: it is taken from the node again. */
  readonly reread?: boolean;
}

/**
 * The ingester's own state. Each method is one transaction. A write under a `Fence` whose epoch is no longer the
 * chunk's throws `LEASE_LOST` and changes nothing.
 */
export interface IngestStore {
  /** Keeps the chain's id at first; answers the one that is kept. */
  storeChainId(chainId: Felt): Promise<Felt>;
  announcedCapabilities(): Promise<unknown>;
  setAnnouncedCapabilities(what: unknown): Promise<void>;

  chunks(): Promise<Chunk[]>;
  /** Adds all of them or none: false when one overlaps a chunk that is there (another process was faster). */
  createChunks(chunks: readonly NewChunk[]): Promise<boolean>;
  markOpened(name: string): Promise<void>;

  /** null while another holder's lease lasts. `seq` begins at max(stored + 1, nowMs), `reserve` are reserved. */
  acquire(request: {
    name: string;
    holder: string;
    ttlMs: number;
    nowMs: number;
    reserve: number;
  }): Promise<LeaseGrant | null>;
  renew(fence: Fence, ttlMs: number): Promise<void>;
  release(fence: Fence): Promise<void>;
  /** Reserves every seq up to `ceiling`. */
  reserveSeq(fence: Fence, ceiling: number): Promise<void>;

  chunk(fence: Fence): Promise<Chunk>;
  /** Written down before blocks are published that are not recorded. */
  plan(fence: Fence, plan: Plan): Promise<void>;
  /** Compare-and-set on the cursor. */
  moveCursor(fence: Fence, move: CursorMove): Promise<void>;
  finish(fence: Fence): Promise<void>;

  /** Headers of everything recorded, lowest first: one a height, without a gap. */
  recordedHeaders(fence: Fence): Promise<RecordedHeader[]>;
  recordedBlocks(name: string, from: number, to: number): Promise<RecordedBlock[]>;
  record(fence: Fence, blocks: readonly RecordedBlock[]): Promise<void>;
  /** Everything recorded above `fork` is to be reverted; the cursor goes down to `fork + 1` if it is above. */
  markForRevert(fence: Fence, fork: number): Promise<void>;
  /** Forgets reverted blocks from a height up, once Kafka has acknowledged their reverts. */
  deleteReverted(fence: Fence, from: number): Promise<void>;
  /** Accepted on L1 and verified to be ours: what is recorded at or below goes. */
  setFinal(fence: Fence, point: BlockPoint): Promise<void>;

  /** Those that are due, longest due first, of a range of heights (no end: all above its start). */
  pendingRepairs(
    range: { readonly start: number; readonly end: number | null },
    limit: number,
  ): Promise<Repair[]>;
  /** It could not be done now: it is due again later, each time after a longer pause, unless it was asked for anew. */
  postponeRepair(fence: Fence, repair: Repair): Promise<void>;
  /** Every map that repairs of this height may have published. */
  repairMaps(height: number): Promise<ContractsMap[]>;
  /** Writes down the map a repair is about to publish, also at the recorded block, and the body that was read again. */
  planRepair(fence: Fence, repair: Repair, map: ContractsMap, body?: BlockBody): Promise<void>;
  /** The map is in force; null: there was nothing to repair. A body takes the place of the one that is recorded. */
  finishRepair(fence: Fence, repair: Repair, map: ContractsMap | null, body?: BlockBody): Promise<void>;

  /**
   * Under a fence whose epoch is over neither changes anything: the next holder would not clear what a former one raises,
   * nor raise again what that one clears.
   */
  raiseAlarm(name: string, detail: string, fence?: Fence): Promise<void>;
  clearAlarm(name: string, fence?: Fence): Promise<void>;
}

/** Everything the parts of the ingester are given. */
export interface IngestDeps {
  readonly node: IngestNode;
  readonly store: IngestStore;
  readonly publisher: Pick<Publisher, 'publish'>;
  readonly standards: Standards;
  /** For one round of repairs: everything that was in the log when a height was first asked for is known to it. */
  readonly createBlockReader: () => ReadPublishedBlock;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: IngestMetrics;
  readonly settings: IngestSettings;
}

export interface IngestSettings {
  /** null: the height accepted on L1 at first start. */
  readonly indexFrom: number | null;
  readonly backfillChunkBlocks: number;
  readonly backfillConcurrency: number;
  readonly prefetchBytes: number;
  /** Blocks asked for side by side by one chunk. */
  readonly prefetchConcurrency: number;
  readonly headPollMs: number;
  readonly l1PollMs: number;
  readonly stallMs: number;
  readonly leaseMs: number;
  /** Names this process among holders of leases. */
  readonly holder: string;
}
