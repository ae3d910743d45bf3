import { z } from 'zod';

import type { Clock } from '../../infra/clock.ts';
import type { Logger } from '../../infra/log.ts';
import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { AppError } from '../../schemas/errors.ts';
import type { BlockBody } from '../../schemas/messages/chain-blocks.ts';
import type { IngestMetrics } from './metrics.ts';

/** What a block is compared with. */
export type Commitment = 'block_hash' | 'events' | 'transactions' | 'receipts';
/** `incomplete`: the node's answer lacks something of what is compared. */
export type CheckOutcome = 'verified' | 'mismatched' | 'incomplete' | 'refused' | 'old_version';

export interface CheckCount {
  readonly commitment: Commitment;
  readonly version: string;
  readonly outcome: CheckOutcome;
  readonly blocks: number;
  readonly from: number;
  readonly to: number;
}

/** Outcomes of comparisons by Starknet version. They outlive the process; what was verified once is known to hold. */
export interface CommitmentStore {
  held(commitment: Commitment): Promise<readonly string[]>;
  /** All versions that were counted. */
  versions(): Promise<readonly string[]>;
  /** The lowest verified height; null: none, or not known. */
  lowest(): Promise<number | null>;
  add(counts: readonly CheckCount[]): Promise<void>;
}

const lowestRow = z.object({ height: z.number().nullable() });
const heldRow = z.object({ starknet_version: z.string() });

export function createCommitmentStore(db: Sql): CommitmentStore {
  return {
    async held(commitment) {
      const sql = `SELECT starknet_version FROM tds.commitment_checks
        WHERE commitment = $1 AND outcome = 'verified' ORDER BY 1`;
      return (await sqlRows(db, heldRow, sql, [commitment])).map((row) => row.starknet_version);
    },
    async versions() {
      const sql = 'SELECT DISTINCT starknet_version FROM tds.commitment_checks ORDER BY 1';
      return (await sqlRows(db, heldRow, sql, [])).map((row) => row.starknet_version);
    },
    async lowest() {
      const sql = "SELECT min(from_height) AS height FROM tds.commitment_checks WHERE outcome = 'verified'";
      const [row] = await sqlRows(db, lowestRow, sql, []);
      return row?.height ?? null;
    },
    async add(counts) {
      const sql = `INSERT INTO tds.commitment_checks AS stored
          (commitment, starknet_version, outcome, blocks, from_height, to_height)
        SELECT * FROM jsonb_to_recordset($1) AS
          counted (commitment text, version text, outcome text, blocks bigint, "from" bigint, "to" bigint)
        -- In one order, so that processes do not deadlock.
        ORDER BY 1, 2, 3
        ON CONFLICT (commitment, starknet_version, outcome) DO UPDATE SET
          blocks = stored.blocks + EXCLUDED.blocks, last_at = now(),
          from_height = least(stored.from_height, EXCLUDED.from_height),
          to_height = greatest(stored.to_height, EXCLUDED.to_height)`;
      await sqlRows(db, z.unknown(), sql, [JSON.stringify(counts)]);
    },
  };
}

/** Questions about what does not hold after which the store is asked again: another process may have verified a block. */
const READ_EVERY = 16;
const STORE_EVERY_MS = 10_000;
/** A node may name any version: so many have counts of their own, more if they were verified; the others share `other`. */
const MAX_VERSIONS = 100;
const MAX_VERIFIED_VERSIONS = 500;
const MAX_VERSION_LENGTH = 31;
const OTHER_VERSIONS = 'other';

export interface CommitmentChecks {
  /** Whether a block was ever verified; of one Starknet version, or of any. */
  holds(commitment: Commitment, version: string | null): Promise<boolean>;
  /** Whether a block at or below a height was ever verified: blocks above it have no older Starknet version. */
  isAboveVerified(height: number): Promise<boolean>;
  /** Mismatches in a row of a commitment that is not known to hold. */
  strange(commitment: Commitment): number;
  /** `proves`: the block has what the commitment is made of. Stored within seconds, and at once where it is the first of its version. */
  count(
    commitment: Commitment,
    block: Pick<BlockBody, 'height' | 'starknet_version'>,
    outcome: CheckOutcome,
    proves: boolean,
  ): Promise<void>;
  /** Stores what was counted. */
  flush(): Promise<void>;
}

export interface CheckSettings {
  readonly checks: CommitmentChecks;
  /**
   * Far below the newest, `sample` compares one block in sixteen and `head` none, for the speed of a backfill; the others
   * compare every block. `refuse` refuses a block whose events do not match always, `record` refuses none, the others once the
   * commitments of the chain are known to hold. Hashes are compared always, but with `off`.
   */
  readonly mode: 'sample' | 'all' | 'head' | 'refuse' | 'record' | 'off';
  /** What becomes of a block that lacks something of what is compared, once that is known to hold. */
  readonly incomplete: 'refuse' | 'accept';
  readonly log: Logger;
}

export interface CommitmentChecksDeps {
  readonly store: CommitmentStore;
  readonly metrics: Pick<IngestMetrics, 'commitmentChecks'>;
  readonly clock: Pick<Clock, 'now'>;
  readonly log: Logger;
}

/** What a version is counted as. */
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
    if (version.length <= MAX_VERSION_LENGTH && named.size < limit) named.add(version);
    return named.has(version) ? version : OTHER_VERSIONS;
  };
}

export function createCommitmentChecks({
  store,
  metrics,
  clock,
  log,
}: CommitmentChecksDeps): CommitmentChecks {
  const held = new Map<Commitment, Set<string>>();
  const asked = new Map<Commitment, number>();
  const strange = new Map<Commitment, number>();
  let lowest = Infinity;
  let oldBlocks = 0;
  let counted = new Map<string, CheckCount>();
  let storeAt = clock.now() + STORE_EVERY_MS;
  const nameOf = createVersionNames(store);

  const isHeld = (commitment: Commitment, version: string | null): boolean => {
    const versions = held.get(commitment);
    return version === null ? (versions?.size ?? 0) > 0 : versions?.has(version) === true;
  };
  const hold = (commitment: Commitment, versions: readonly string[]): void => {
    if (versions.some((version) => !isHeld(commitment, version))) strange.delete(commitment);
    held.set(commitment, new Set([...(held.get(commitment) ?? []), ...versions]));
  };
  const flush = async (): Promise<void> => {
    if (counted.size === 0) return;
    const storing = counted;
    counted = new Map();
    storeAt = clock.now() + STORE_EVERY_MS;
    await store.add([...storing.values()]);
  };
  return {
    async holds(commitment, version) {
      if (isHeld(commitment, version)) return true;
      const times = asked.get(commitment) ?? 0;
      asked.set(commitment, times + 1);
      if (times % READ_EVERY === 0) {
        const versions = await store.held(commitment);
        if (versions.length > 0) hold(commitment, versions);
      }
      return isHeld(commitment, version);
    },
    async isAboveVerified(height) {
      if (oldBlocks % READ_EVERY === 0) lowest = Math.min(lowest, (await store.lowest()) ?? Infinity);
      oldBlocks += 1;
      return height >= lowest;
    },
    strange: (commitment) => strange.get(commitment) ?? 0,
    async count(commitment, { height, starknet_version }, outcome, proves) {
      metrics.commitmentChecks.inc({ commitment, outcome });
      if (outcome === 'mismatched' && !isHeld(commitment, starknet_version))
        strange.set(commitment, (strange.get(commitment) ?? 0) + 1);
      if (!proves) return;
      const version = await nameOf(starknet_version, outcome);
      if (outcome === 'verified') {
        strange.delete(commitment);
        lowest = Math.min(lowest, height);
      }
      const key = `${commitment} ${version} ${outcome}`;
      const { blocks, from, to } = counted.get(key) ?? { blocks: 0, from: height, to: height };
      counted.set(key, {
        commitment,
        version,
        outcome,
        blocks: blocks + 1,
        from: Math.min(from, height),
        to: Math.max(to, height),
      });
      if (outcome === 'verified' && !isHeld(commitment, version)) {
        await flush();
        hold(commitment, [version]);
        log.info({ commitment, version }, 'blocks match: those that do not are refused from now on');
      } else if (clock.now() >= storeAt) {
        // Counts are lost if the store is unavailable; the block is not.
        await flush().catch((error: unknown) =>
          log.warn({ err: error }, 'outcomes of comparisons not stored'),
        );
      }
    },
    flush,
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
    `block ${height}: the node does not give ${PARTS[commitment]}, which other blocks have; to index it nevertheless, set VERIFY_INCOMPLETE=accept`,
    { retryable: true, details: { height, hash } },
  );
}
