import { z } from 'zod';

import { sqlRows } from '../../../infra/postgres/client.ts';
import type { PoolClient } from '../../../infra/postgres/client.ts';

/**
 * Where the transfers that were sent are. A delivery stands for the transfer itself: one that lands again unchanged in
 * another block is not sent again; one that is in no block while the new fork is ten blocks past it is told of as reverted
 * (decision 75). Heights of different ranges come by different partitions, in any order: of two blocks that a transfer
 * was in, the one with the higher seq is the later.
 */

/** Blocks that a new fork must be past a transfer that it lacks. */
const PAST = 10;
/** How far down a fork is followed; accepted blocks are remembered for as long. */
export const DEEPEST = 4096;

/**
 * Few rows of many are looked up here, each by its index; on a table that has grown since it was last analyzed the planner
 * would read all of it.
 */
const BY_INDEX = 'SET LOCAL enable_seqscan = off';

export interface Landed {
  readonly height: number;
  readonly hash: string;
  readonly seq: number;
}

/** A block took its height, with these transfers in it that were sent before. */
export async function landed(tx: PoolClient, block: Landed, subjects: readonly string[]): Promise<void> {
  await tx.query(
    `INSERT INTO tds.dispatch_blocks AS known (height, hash, seq) VALUES ($1, $2, $3)
     ON CONFLICT (height) DO UPDATE SET hash = excluded.hash, seq = excluded.seq WHERE known.seq < excluded.seq`,
    [block.height, block.hash, block.seq],
  );
  await tx.query('DELETE FROM tds.dispatch_blocks WHERE height < $1', [block.height - DEEPEST]);
  if (subjects.length === 0) return;
  await tx.query(
    `UPDATE tds.webhook_deliveries SET landed_hash = $2, landed_seq = $3, reverted_height = NULL
     WHERE subject = ANY ($1::uuid[]) AND landed_seq < $3`,
    [subjects, block.hash, block.seq],
  );
}

/** A block lost its height: what was sent of it, and has not landed elsewhere since, is in no block. */
export async function reverted(tx: PoolClient, block: Landed, subjects: readonly string[]): Promise<void> {
  await tx.query('DELETE FROM tds.dispatch_blocks WHERE height = $1 AND hash = $2', [
    block.height,
    block.hash,
  ]);
  await tx.query(
    `UPDATE tds.webhook_deliveries SET reverted_height = $3
     WHERE subject = ANY ($1::uuid[]) AND landed_hash = $2 AND event = 'transfer.created'`,
    [subjects, block.hash, block.height],
  );
}

const goneRow = z.object({ webhook_id: z.number(), subject: z.string(), body: z.string() });
/** A transfer that was sent, and is gone. */
export type Gone = z.infer<typeof goneRow>;

/**
 * Takes what is gone for good: the new fork has all of the blocks up to ten above where it was. Whichever of them comes
 * last tells it.
 */
export async function takeGone(tx: PoolClient): Promise<Gone[]> {
  await tx.query(BY_INDEX);
  const rows = await sqlRows(
    tx,
    goneRow,
    `UPDATE tds.webhook_deliveries d SET reverted_height = NULL
     WHERE reverted_height IS NOT NULL AND (
       SELECT count(*) FROM tds.dispatch_blocks b
       WHERE b.height BETWEEN d.reverted_height AND d.reverted_height + ${PAST}
     ) = ${PAST + 1}
     RETURNING webhook_id, subject, body`,
  );
  // A transfer that came, went and came again was sent twice: it went once more.
  return [...new Map(rows.map((row) => [`${row.webhook_id} ${row.subject}`, row])).values()];
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
