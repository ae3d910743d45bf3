import { z } from 'zod';

import { sqlRows } from '../../../infra/postgres/client.ts';
import type { PoolClient, Sql } from '../../../infra/postgres/client.ts';
import { HEIGHT_RANGE } from '../../../schemas/topics.ts';

/**
 * Which block includes each transfer that was delivered. A delivery stands for the transfer itself: one that another block
 * includes unchanged is not sent again; one that no block includes while the new fork is ten blocks past it is sent as
 * reverted (decision 75). Heights of different ranges arrive by different partitions, in any order: of two blocks that
 * include a transfer, the one with the higher seq is the later, and blocks are of one fork where each names its parent.
 */

/** Blocks that a new fork must be past a transfer that it lacks. */
const CONFIRMING_BLOCKS = 10;
/** Depth to which a fork is followed. */
export const MAX_REORG_DEPTH = 4096;
/** Heights that are kept below an accepted block: after a standstill one partition may be read far ahead of another. */
const RETAINED_HEIGHTS = 131_072;

/**
 * The rows needed are few and indexed; on a table that has grown since its last ANALYZE the planner would scan all of it.
 */
const FORCE_INDEX_SCANS = 'SET LOCAL enable_seqscan = off';

/**
 * Serializes the transactions of a matcher over all partitions, because a transfer can move between partitions: otherwise
 * neither of two that complete the ten blocks sees the other's, and a transfer that is included again while it is found
 * reverted is lost.
 */
export async function lockMatcher(tx: PoolClient, matcher: string): Promise<void> {
  await tx.query('SELECT pg_advisory_xact_lock(hashtext($1))', [`tds.dispatch ${matcher}`]);
}

export interface BlockPosition {
  readonly height: number;
  readonly hash: string;
  readonly seq: number;
}

/**
 * Records an accepted block (with its parent) or a reverted one. False where a later message about the height was matched: a
 * previous holder of the chunk's lease published this one late, and the chain is what the later one says.
 */
async function recordBlock(
  tx: PoolClient,
  { height, hash, seq }: BlockPosition,
  parentHash: string | null,
): Promise<boolean> {
  const { rowCount } = await tx.query(
    `INSERT INTO tds.dispatch_blocks AS stored (height, hash, seq, parent_hash) VALUES ($1, $2, $3, $4)
     ON CONFLICT (height) DO UPDATE SET hash = excluded.hash, seq = excluded.seq, parent_hash = excluded.parent_hash
       WHERE stored.seq <= excluded.seq`,
    [height, hash, seq, parentHash],
  );
  return rowCount === 1;
}

/** Records an accepted block; false where a later message has superseded it (`recordBlock`). */
export async function recordAccepted(
  tx: PoolClient,
  block: BlockPosition & { readonly parentHash: string },
): Promise<boolean> {
  if (!(await recordBlock(tx, block, block.parentHash))) return false;
  await tx.query('DELETE FROM tds.dispatch_blocks WHERE height < $1', [block.height - RETAINED_HEIGHTS]);
  return true;
}

/** Records that an accepted block includes these transfers, all delivered before. */
export async function recordInclusions(
  tx: PoolClient,
  { hash, seq }: Pick<BlockPosition, 'hash' | 'seq'>,
  subjects: readonly string[],
): Promise<void> {
  if (subjects.length === 0) return;
  await tx.query(
    `UPDATE tds.webhook_deliveries
     SET block_hash = $2, block_seq = $3, reverted_height = NULL, reverted_seq = NULL
     WHERE subject = ANY ($1::uuid[]) AND block_seq < $3`,
    [subjects, hash, seq],
  );
}

/** Records a reverted block: its transfers that no later block includes are included by none. */
export async function recordRemovals(
  tx: PoolClient,
  block: BlockPosition,
  subjects: readonly string[],
): Promise<void> {
  if (!(await recordBlock(tx, { ...block, hash: '' }, null))) return;
  await tx.query(
    `UPDATE tds.webhook_deliveries SET reverted_height = $3, reverted_seq = $4
     WHERE subject = ANY ($1::uuid[]) AND block_hash = $2 AND event = 'transfer.created'`,
    [subjects, block.hash, block.height, block.seq],
  );
}

const revertedRow = z.object({
  webhook_id: z.number(),
  subject: z.string(),
  body: z.string(),
  seq: z.number(),
});
/** A delivered transfer that was reverted for good; `seq`: of the revert of its block. */
export type RevertedTransfer = z.infer<typeof revertedRow>;

/**
 * Takes the transfers that are reverted for good: the fork that replaced their block reaches ten blocks above it, and all
 * of that fork has been read, from the last common block up. Where the fork begins in another partition, its blocks do not
 * link, or end at that partition's border, until that partition has been read as far, too; elsewhere below, blocks may be
 * missing because no webhook needed them. A transfer below the retained heights is reverted for good as well.
 */
export async function takeRevertedTransfers(tx: PoolClient): Promise<RevertedTransfer[]> {
  await tx.query(FORCE_INDEX_SCANS);
  const pairs = 'tds.dispatch_blocks b LEFT JOIN tds.dispatch_blocks below ON below.height = b.height - 1';
  const rows = await sqlRows(
    tx,
    revertedRow,
    `WITH removed AS (
       SELECT DISTINCT reverted_height AS height, coalesce(reverted_seq, 0) AS seq
       FROM tds.webhook_deliveries WHERE reverted_height IS NOT NULL AND event = 'transfer.created'
     ), final AS (
       SELECT * FROM removed
       WHERE height < (SELECT max(height) FROM tds.dispatch_blocks) - $1::bigint
         OR (
           SELECT count(*) FROM ${pairs} WHERE b.height > removed.height AND b.height <= removed.height + $2::bigint
             AND b.hash <> '' AND coalesce(b.parent_hash, below.hash) = below.hash
         ) = $2::bigint AND NOT EXISTS (
           SELECT 1 FROM ${pairs} WHERE b.height <= removed.height
             AND (b.parent_hash <> below.hash OR below.hash IS NULL AND b.height % $3::bigint = 0)
             AND b.height > coalesce((SELECT max(height) FROM tds.dispatch_blocks
               WHERE height < removed.height AND seq < removed.seq AND hash <> ''), -1)
         )
     )
     UPDATE tds.webhook_deliveries d SET reverted_height = NULL, reverted_seq = NULL
     FROM final WHERE d.reverted_height = final.height AND coalesce(d.reverted_seq, 0) = final.seq
       AND d.event = 'transfer.created'
     RETURNING d.webhook_id, d.subject, d.body, final.seq`,
    [RETAINED_HEIGHTS, CONFIRMING_BLOCKS, HEIGHT_RANGE],
  );
  // A transfer that was reverted and included again has two deliveries, and is reverted once.
  return [...new Map(rows.map((row) => [`${row.webhook_id} ${row.subject}`, row])).values()];
}

/** The lowest height with a removed transfer that is neither included again nor reverted for good; null: none. */
export async function lowestRemovalHeight(db: Sql): Promise<number | null> {
  const [row] = await sqlRows(
    db,
    z.object({ lowest: z.number().nullable() }),
    `SELECT min(reverted_height) AS lowest FROM tds.webhook_deliveries
     WHERE reverted_height IS NOT NULL AND event = 'transfer.created'`,
  );
  return row?.lowest ?? null;
}

const previousRow = z.object({
  webhook_id: z.number(),
  subject: z.string(),
  reverts: z.number(),
  reverted_seq: z.number(),
});

/** Earlier deliveries of some transfers, whatever block included them. */
export interface PreviousDeliveries {
  readonly subjects: readonly string[];
  /** Number of `transfer.reverted` deliveries: a transfer included after one is new to the webhook. */
  reverts(webhookId: number, subject: string): number;
  /** The seq of the revert that the last of them is about; 0: there is none. */
  revertedSeq(webhookId: number, subject: string): number;
}

export async function previousDeliveries(
  tx: PoolClient,
  subjects: readonly string[],
): Promise<PreviousDeliveries> {
  await tx.query(FORCE_INDEX_SCANS);
  const rows = await sqlRows(
    tx,
    previousRow,
    `SELECT webhook_id, subject, count(*) FILTER (WHERE event = 'transfer.reverted') AS reverts,
       coalesce(max(block_seq) FILTER (WHERE event = 'transfer.reverted'), 0) AS reverted_seq
     FROM tds.webhook_deliveries WHERE subject = ANY ($1::uuid[]) GROUP BY webhook_id, subject`,
    [subjects],
  );
  const found = new Map(rows.map((row) => [`${row.webhook_id} ${row.subject}`, row]));
  return {
    subjects: [...new Set(rows.map(({ subject }) => subject))],
    reverts: (webhookId, subject) => found.get(`${webhookId} ${subject}`)?.reverts ?? 0,
    revertedSeq: (webhookId, subject) => found.get(`${webhookId} ${subject}`)?.reverted_seq ?? 0,
  };
}
