import { z } from 'zod';

import { sqlRows } from '../../../infra/postgres/client.ts';
import type { PoolClient, Sql } from '../../../infra/postgres/client.ts';
import { HEIGHT_RANGE } from '../../../schemas/topics.ts';

/**
 * Where the transfers that were sent are. A delivery stands for the transfer itself: one that lands again unchanged in
 * another block is not sent again; one that is in no block while the new fork is ten blocks past it is told of as reverted
 * (decision 75). Heights of different ranges come by different partitions, in any order: of two blocks that a transfer
 * was in, the one with the higher seq is the later, and blocks are of one fork where each names the one below.
 */

/** Blocks that a new fork must be past a transfer that it lacks. */
const PAST = 10;
/** How far down a fork is followed. */
export const DEEPEST = 4096;
/** Heights that are remembered below an accepted block: after a standstill one partition may be read far ahead of another. */
const REMEMBERED = 131_072;

/**
 * Few rows of many are looked up here, each by its index; on a table that has grown since it was last analyzed the planner
 * would read all of it.
 */
const BY_INDEX = 'SET LOCAL enable_seqscan = off';

/**
 * A transfer can move from one partition to another: what these make of their blocks, they make one after the other. Else
 * neither of two that end the ten blocks sees the other's, and a transfer that lands again while it is told to be gone is
 * lost.
 */
export async function oneAtATime(tx: PoolClient, matcher: string): Promise<void> {
  await tx.query('SELECT pg_advisory_xact_lock(hashtext($1))', [`tds.dispatch ${matcher}`]);
}

export interface Landed {
  readonly height: number;
  readonly hash: string;
  readonly seq: number;
}

/** A block took its height, with these transfers in it that were sent before. */
export async function landed(
  tx: PoolClient,
  block: Landed & { readonly parentHash: string },
  subjects: readonly string[],
): Promise<void> {
  await tx.query(
    `INSERT INTO tds.dispatch_blocks AS known (height, hash, seq, parent_hash) VALUES ($1, $2, $3, $4)
     ON CONFLICT (height) DO UPDATE SET hash = excluded.hash, seq = excluded.seq, parent_hash = excluded.parent_hash
       WHERE known.seq < excluded.seq`,
    [block.height, block.hash, block.seq, block.parentHash],
  );
  await tx.query('DELETE FROM tds.dispatch_blocks WHERE height < $1', [block.height - REMEMBERED]);
  if (subjects.length === 0) return;
  await tx.query(
    `UPDATE tds.webhook_deliveries
     SET landed_hash = $2, landed_seq = $3, reverted_height = NULL, reverted_seq = NULL
     WHERE subject = ANY ($1::uuid[]) AND landed_seq < $3`,
    [subjects, block.hash, block.seq],
  );
}

/** A block lost its height: what was sent of it, and has not landed elsewhere since, is in no block. */
export async function reverted(tx: PoolClient, block: Landed, subjects: readonly string[]): Promise<void> {
  await tx.query(
    `INSERT INTO tds.dispatch_blocks AS known (height, hash, seq) VALUES ($1, '', $2)
     ON CONFLICT (height) DO UPDATE SET hash = excluded.hash, seq = excluded.seq, parent_hash = NULL
       WHERE known.seq < excluded.seq`,
    [block.height, block.seq],
  );
  await tx.query(
    `UPDATE tds.webhook_deliveries SET reverted_height = $3, reverted_seq = $4
     WHERE subject = ANY ($1::uuid[]) AND landed_hash = $2 AND event = 'transfer.created'`,
    [subjects, block.hash, block.height, block.seq],
  );
}

const goneRow = z.object({ webhook_id: z.number(), subject: z.string(), body: z.string() });
/** A transfer that was sent, and is gone. */
export type Gone = z.infer<typeof goneRow>;

/**
 * Takes what is gone for good: the fork that took its place reaches ten blocks above, and all of it is read, from the
 * last block that was there before the revert. Where that begins in another partition, its blocks do not fit together, or
 * end where that one's would, until it is read as far, too; elsewhere below, blocks may be missing that nobody wanted to
 * hear of. What lies so far below that blocks are forgotten is gone as well.
 */
export async function takeGone(tx: PoolClient): Promise<Gone[]> {
  await tx.query(BY_INDEX);
  const pairs = 'tds.dispatch_blocks b LEFT JOIN tds.dispatch_blocks below ON below.height = b.height - 1';
  const rows = await sqlRows(
    tx,
    goneRow,
    `WITH taken AS (
       SELECT DISTINCT reverted_height AS height, coalesce(reverted_seq, 0) AS seq
       FROM tds.webhook_deliveries WHERE reverted_height IS NOT NULL AND event = 'transfer.created'
     ), gone AS (
       SELECT * FROM taken
       WHERE height < (SELECT max(height) FROM tds.dispatch_blocks) - ${REMEMBERED}
         OR (
           SELECT count(*) FROM ${pairs} WHERE b.height > taken.height AND b.height <= taken.height + ${PAST}
             AND b.hash <> '' AND coalesce(b.parent_hash, below.hash) = below.hash
         ) = ${PAST} AND NOT EXISTS (
           SELECT 1 FROM ${pairs} WHERE b.height <= taken.height
             AND (b.parent_hash <> below.hash OR below.hash IS NULL AND b.height % ${HEIGHT_RANGE} = 0)
             AND b.height > coalesce((SELECT max(height) FROM tds.dispatch_blocks
               WHERE height < taken.height AND seq < taken.seq AND hash <> ''), -1)
         )
     )
     UPDATE tds.webhook_deliveries d SET reverted_height = NULL, reverted_seq = NULL
     FROM gone WHERE d.reverted_height = gone.height AND coalesce(d.reverted_seq, 0) = gone.seq
       AND d.event = 'transfer.created'
     RETURNING d.webhook_id, d.subject, d.body`,
  );
  // A transfer that came, went and came again was sent twice: it went once more.
  return [...new Map(rows.map((row) => [`${row.webhook_id} ${row.subject}`, row])).values()];
}

/** The lowest height that something was taken from which has neither landed again nor is gone for good; null: none. */
export async function lowestReverted(db: Sql): Promise<number | null> {
  const [row] = await sqlRows(
    db,
    z.object({ lowest: z.number().nullable() }),
    `SELECT min(reverted_height) AS lowest FROM tds.webhook_deliveries
     WHERE reverted_height IS NOT NULL AND event = 'transfer.created'`,
  );
  return row?.lowest ?? null;
}

const sentRow = z.object({ webhook_id: z.number(), subject: z.string(), n: z.number() });

/** What was sent of some transfers, in whatever block they were. */
export interface SentBefore {
  readonly subjects: readonly string[];
  /** How often a webhook was told that a transfer is gone: when it lands after that, it is new to it. */
  toldGone(webhookId: number, subject: string): number;
}

export async function sentBefore(tx: PoolClient, subjects: readonly string[]): Promise<SentBefore> {
  await tx.query(BY_INDEX);
  const rows = await sqlRows(
    tx,
    sentRow,
    `SELECT webhook_id, subject, count(*) FILTER (WHERE event = 'transfer.reverted') AS n
     FROM tds.webhook_deliveries WHERE subject = ANY ($1::uuid[]) GROUP BY webhook_id, subject`,
    [subjects],
  );
  const known = new Map(rows.map((row) => [`${row.webhook_id} ${row.subject}`, row.n]));
  return {
    subjects: [...new Set(rows.map(({ subject }) => subject))],
    toldGone: (webhookId, subject) => known.get(`${webhookId} ${subject}`) ?? 0,
  };
}
