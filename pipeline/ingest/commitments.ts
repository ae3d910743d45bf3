import type { Clock } from '../../infra/clock.ts';
import type { Logger } from '../../infra/log.ts';
import { isHashable } from '../../schemas/commitment/block-hash.ts';
import type { ComputeCommitment } from '../../schemas/commitment/compute.ts';
import { AppError } from '../../schemas/errors.ts';
import type { BlockBody } from '../../schemas/messages/chain-blocks.ts';
import type { COMMITMENTS, IngestMetrics } from './metrics.ts';

/** What a block is compared with. */
export type Commitment = (typeof COMMITMENTS)[number];
/** `incomplete`: the node's answer lacks compared data. */
export type CheckOutcome = 'verified' | 'mismatched' | 'incomplete' | 'refused' | 'old_version';

export interface CheckCount {
  readonly commitment: Commitment;
  readonly version: string;
  readonly outcome: CheckOutcome;
  readonly blocks: number;
  readonly from: number;
  readonly to: number;
}

/** Outcomes of comparisons by Starknet version. They outlive the process. */
export interface CommitmentStore {
  /** Starknet versions of which a block was verified. */
  verifiedVersions(commitment: Commitment): Promise<readonly string[]>;
  /** All versions that were counted. */
  versions(): Promise<readonly string[]>;
  /** The lowest verified height; null: none, or not known. */
  lowest(): Promise<number | null>;
  add(counts: readonly CheckCount[]): Promise<void>;
  /** Forgets versions of which few blocks are verified, from this height on; returns them. */
  forget(from: number): Promise<readonly { readonly commitment: string; readonly version: string }[]>;
}

/** Comparison of a block with a commitment. */
export interface CommitmentComparison {
  readonly commitment: Commitment;
  readonly outcome: CheckOutcome;
  /** False if the outcome says nothing about the commitment, as for a block without events. */
  readonly isConclusive: boolean;
}

/** After this many negative answers the store is read again: another process may have verified a block. */
const READ_EVERY = 16;
const STORE_EVERY_MS = 10_000;
/** A node can name any version: at most this many are counted separately, more if verified; the rest are counted as `other`. */
const MAX_VERSIONS = 100;
const MAX_VERIFIED_VERSIONS = 500;
const OTHER_VERSIONS = 'other';

/** How long a verified block counts that is not published, in milliseconds. */
const RECENT_MS = 600_000;

/**
 * Which commitments are enforced: those that a verified block has shown to be computed as here. An unpublished block counts for
 * some minutes only, because the node may have returned a block of another chain; a published one counts for good, unless it is
 * one of the first few of its version and is reverted.
 */
export interface CommitmentChecks {
  /** Whether a block was ever verified, of one Starknet version or of any (null): mismatches are then refused. */
  isEnforced(commitment: Commitment, version: string | null): Promise<boolean>;
  /** Whether a block at or below a height was ever verified: blocks above it have no older Starknet version. */
  isAboveVerified(height: number): Promise<boolean>;
  /** Mismatches in a row of a commitment that is not enforced for the versions of these blocks. */
  mismatchesInARow(commitment: Commitment): number;
  /** Counts the comparisons of a block that was not refused. They are stored once it is published. */
  compared(block: BlockBody, comparisons: readonly CommitmentComparison[]): void;
  /** Stores within seconds that a block was refused. */
  refused(block: ComparedBlock, comparison: Omit<CommitmentComparison, 'outcome'>): Promise<void>;
  /** Stores the comparisons of these blocks within seconds, and at once the first verified one of a Starknet version. */
  published(blocks: readonly BlockBody[]): Promise<void>;
  /** Forgets versions of which only a few blocks, all from this height on, were verified. */
  reverted(from: number): Promise<void>;
  /** Stores the counts. */
  flush(): Promise<void>;
}

type ComparedBlock = Pick<BlockBody, 'height' | 'starknet_version'>;

export interface CheckSettings {
  readonly checks: CommitmentChecks;
  /**
   * Far below the newest, `sample` compares one block in sixteen and `head` none, for the speed of a backfill; the others
   * compare every block. Of a block whose events do not match: `refuse` always refuses it, `record` never, the others once the
   * commitment is enforced. Hashes are always compared, except with `off`.
   */
  readonly mode: 'sample' | 'all' | 'head' | 'refuse' | 'record' | 'off';
  /** What becomes of a block that lacks compared data, once the commitment is enforced. */
  readonly incomplete: 'refuse' | 'accept';
  readonly compute: ComputeCommitment;
  readonly log: Logger;
}

export interface CommitmentChecksDeps {
  readonly store: CommitmentStore;
  readonly metrics: Pick<IngestMetrics, 'commitmentChecks'>;
  readonly clock: Pick<Clock, 'now'>;
  readonly log: Logger;
}

/** Names the version that a block is counted under. */
function createVersionNames(
  store: CommitmentStore,
): (version: string, outcome: CheckOutcome) => Promise<string> {
  let named: Set<string> | null = null;
  return async (version, outcome) => {
    try {
      named ??= new Set(await store.versions());
    } catch {
      // The block is not lost for its count.
      return OTHER_VERSIONS;
    }
    const limit = outcome === 'verified' ? MAX_VERIFIED_VERSIONS : MAX_VERSIONS;
    if (isHashable(version) && named.size < limit) named.add(version);
    return named.has(version) ? version : OTHER_VERSIONS;
  };
}

/** Counts of outcomes, stored together every few seconds. */
function createCounter({ store, clock, log }: Omit<CommitmentChecksDeps, 'metrics'>) {
  let counted = new Map<string, CheckCount>();
  let storeAt = clock.now() + STORE_EVERY_MS;
  const add = (count: CheckCount): void => {
    const key = `${count.commitment} ${count.version} ${count.outcome}`;
    const { blocks, from, to } = counted.get(key) ?? { blocks: 0, from: Infinity, to: -Infinity };
    counted.set(key, {
      ...count,
      blocks: blocks + count.blocks,
      from: Math.min(from, count.from),
      to: Math.max(to, count.to),
    });
  };
  const flush = async (): Promise<void> => {
    if (counted.size === 0) return;
    const storing = [...counted.values()];
    counted = new Map();
    storeAt = clock.now() + STORE_EVERY_MS;
    try {
      await store.add(storing);
    } catch (error) {
      for (const count of storing) add(count);
      throw error;
    }
  };
  return {
    add,
    flush,
    /** The blocks are not lost for their counts. */
    async flushIfDue(): Promise<void> {
      if (clock.now() < storeAt) return;
      await flush().catch((error: unknown) => log.warn({ err: error }, 'outcomes of comparisons not stored'));
    },
  };
}

/** Versions of which a block was verified, by commitment, and the lowest verified height. */
function createVerified(clock: Pick<Clock, 'now'>) {
  const stored = new Map<Commitment, Set<string>>();
  /** When a verified block that is not published expires, by version, in milliseconds. */
  const recently = new Map<Commitment, Map<string, number>>();
  let lowest = Infinity;
  let lowestRecent = { height: Infinity, until: 0 };
  return {
    isEnforced(commitment: Commitment, version: string | null): boolean {
      const [lasting, recent] = [stored.get(commitment), recently.get(commitment)];
      if (version !== null)
        return lasting?.has(version) === true || (recent?.get(version) ?? 0) > clock.now();
      return (lasting?.size ?? 0) > 0 || [...(recent?.values() ?? [])].some((until) => until > clock.now());
    },
    isStored: (commitment: Commitment, version: string) => stored.get(commitment)?.has(version) === true,
    store(commitment: Commitment, versions: readonly string[]): void {
      stored.set(commitment, new Set([...(stored.get(commitment) ?? []), ...versions]));
    },
    forget(versions: readonly { readonly commitment: string; readonly version: string }[]): void {
      for (const [commitment, known] of [...stored, ...recently])
        for (const { version } of versions.filter((one) => one.commitment === commitment))
          known.delete(version);
      lowest = Infinity;
      lowestRecent = { height: Infinity, until: 0 };
    },
    storeLowest(height: number): void {
      lowest = Math.min(lowest, height);
    },
    add(commitment: Commitment, { height, starknet_version }: ComparedBlock): void {
      const until = clock.now() + RECENT_MS;
      const recent = recently.get(commitment) ?? new Map<string, number>();
      recently.set(commitment, recent);
      if (recent.has(starknet_version) || recent.size < MAX_VERSIONS) recent.set(starknet_version, until);
      if (height <= lowestRecent.height || lowestRecent.until <= clock.now())
        lowestRecent = { height, until };
    },
    lowest: () => (lowestRecent.until > clock.now() ? Math.min(lowest, lowestRecent.height) : lowest),
  };
}

export function createCommitmentChecks(deps: CommitmentChecksDeps): CommitmentChecks {
  const { store, metrics, clock, log } = deps;
  const verified = createVerified(clock);
  const counter = createCounter(deps);
  const asked = new Map<Commitment, number>();
  const mismatches = new Map<Commitment, number>();
  const unpublished = new WeakMap<BlockBody, readonly CommitmentComparison[]>();
  let oldBlocks = 0;
  const nameOf = createVersionNames(store);

  const count = async (
    { height, starknet_version }: ComparedBlock,
    { commitment, outcome, isConclusive }: CommitmentComparison,
  ): Promise<void> => {
    if (!isConclusive) return;
    const version = await nameOf(starknet_version, outcome);
    counter.add({ commitment, version, outcome, blocks: 1, from: height, to: height });
    if (outcome !== 'verified') return;
    verified.storeLowest(height);
    if (verified.isStored(commitment, version)) return;
    await counter.flush();
    verified.store(commitment, [version]);
    log.info(
      { commitment, version },
      'commitment verified; mismatching blocks of this version are refused from now on',
    );
  };
  return {
    async isEnforced(commitment, version) {
      if (verified.isEnforced(commitment, version)) return true;
      const times = asked.get(commitment) ?? 0;
      asked.set(commitment, times + 1);
      if (times % READ_EVERY === 0) {
        const versions = await store.verifiedVersions(commitment);
        if (versions.length > 0) mismatches.delete(commitment);
        verified.store(commitment, versions);
      }
      return verified.isEnforced(commitment, version);
    },
    async isAboveVerified(height) {
      if (oldBlocks % READ_EVERY === 0) verified.storeLowest((await store.lowest()) ?? Infinity);
      oldBlocks += 1;
      return height >= verified.lowest();
    },
    mismatchesInARow: (commitment) => mismatches.get(commitment) ?? 0,
    compared(block, comparisons) {
      unpublished.set(block, comparisons);
      for (const { commitment, outcome, isConclusive } of comparisons) {
        metrics.commitmentChecks.inc({ commitment, outcome });
        if (outcome === 'mismatched' && !verified.isEnforced(commitment, block.starknet_version))
          mismatches.set(commitment, (mismatches.get(commitment) ?? 0) + 1);
        if (outcome !== 'verified' || !isConclusive) continue;
        mismatches.delete(commitment);
        verified.add(commitment, block);
      }
    },
    async refused(block, { commitment, isConclusive }) {
      metrics.commitmentChecks.inc({ commitment, outcome: 'refused' });
      await count(block, { commitment, outcome: 'refused', isConclusive });
      await counter.flushIfDue();
    },
    async published(blocks) {
      for (const block of blocks) {
        const comparisons = unpublished.get(block) ?? [];
        // First: a block that is published again after an error counts once.
        unpublished.delete(block);
        for (const comparison of comparisons) await count(block, comparison);
      }
      await counter.flushIfDue();
    },
    async reverted(from) {
      await counter.flush();
      const forgotten = await store.forget(from);
      if (forgotten.length === 0) return;
      verified.forget(forgotten);
      // The lowest verified height is read again.
      oldBlocks = 0;
    },
    flush: () => counter.flush(),
  };
}

const MISMATCHES: Record<Commitment | 'version', string> = {
  version: 'a block below it has a newer Starknet version',
  block_hash: 'its header does not have its hash',
  events: 'its events do not match the event_commitment of its header',
  transactions: 'its transactions do not match the transaction_commitment of its header',
  receipts: 'its receipts do not match the receipt_commitment of its header',
};

const PARTS: Record<Commitment, string> = {
  block_hash: 'the whole header',
  events: 'event_commitment',
  transactions: 'transaction_commitment or the signatures',
  receipts: 'receipt_commitment or whole receipts',
};

export function mismatched({ height, hash }: BlockBody, commitment: Commitment | 'version'): AppError {
  return new AppError('BLOCK_MISMATCHED', `block ${height}: ${MISMATCHES[commitment]}`, {
    retryable: true,
    details: { height, hash },
  });
}

export function incomplete({ height, hash }: BlockBody, commitment: Commitment): AppError {
  return new AppError(
    'BLOCK_UNVERIFIABLE',
    `block ${height}: the node does not return ${PARTS[commitment]}, as it does for other blocks; to index the block anyway, set VERIFY_INCOMPLETE=accept`,
    { retryable: true, details: { height, hash } },
  );
}
