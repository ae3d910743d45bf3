import { z } from 'zod';

import { countOf, inTransaction, sqlRows } from '../../infra/postgres/client.ts';
import type { Pool, PoolClient, Sql } from '../../infra/postgres/client.ts';

/**
 * Deletes deliveries in pages, each in a short transaction, so that no other work on deliveries waits for long. Rows that
 * another transaction has locked are left for a later page: a page never waits, and is no part of a deadlock.
 */

/** A page is read by an index in its order: without statistics the planner would read and sort all rows for each page. */
const FORCE_ORDERED_INDEX =
  'SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off';

/** Deletes the deliveries that `page` selects the ids of, and returns their number. */
async function deletePage(tx: PoolClient, page: string, params: readonly unknown[]): Promise<number> {
  await tx.query(FORCE_ORDERED_INDEX);
  return await countOf(
    tx,
    `WITH page AS MATERIALIZED (${page} FOR UPDATE SKIP LOCKED), deleted AS (
       DELETE FROM tds.webhook_deliveries WHERE id = ANY (ARRAY(SELECT id FROM page)) RETURNING 1
     ) SELECT count(*) AS n FROM deleted`,
    params,
  );
}

/** Schedules the deletion of a deleted webhook's deliveries. None is sent any more: its endpoint is deleted here. */
export async function scheduleDeletion(tx: PoolClient, webhookId: number, now: number): Promise<void> {
  await tx.query(
    'INSERT INTO tds.webhook_deletions (webhook_id, requested_at) VALUES ($1, $2) ON CONFLICT DO NOTHING',
    [webhookId, now],
  );
  await tx.query('DELETE FROM tds.webhook_endpoints WHERE webhook_id = $1', [webhookId]);
}

/**
 * Schedules the deletion of deliveries that were stored after their webhook was deleted, by a matcher that had read it
 * before: storing them has created its endpoint again. Does nothing if the schema is no longer served: it lacks the
 * webhooks that were created since.
 */
export async function scheduleOrphanDeletions(pool: Pool, schema: string, now: number): Promise<void> {
  const orphans = await sqlRows(
    pool,
    z.object({ webhook_id: z.number() }),
    `SELECT webhook_id FROM tds.webhook_endpoints e
     WHERE NOT EXISTS (SELECT 1 FROM ${schema}.webhooks w WHERE w.id = e.webhook_id)
       AND (SELECT schemas ->> 'webhooks' FROM tds.served) = $1 ORDER BY webhook_id`,
    [schema],
  );
  for (const { webhook_id: id } of orphans)
    await inTransaction(pool, async (tx) => await scheduleDeletion(tx, id, now));
}

const deletionRow = z.object({ webhook_id: z.number(), requested_at: z.number(), deleted: z.number() });

/** The state of a deletion after a page of it. */
export interface DeletionProgress {
  readonly webhookId: number;
  readonly requestedAt: number;
  /** Deliveries deleted by this page, and so far. */
  readonly page: number;
  readonly deleted: number;
  readonly isDone: boolean;
}

/**
 * Deletes one page of the deliveries of a deleted webhook: of the one with the fewest deliveries deleted so far, so that a
 * short deletion does not wait for a long one. Null: nothing is left to delete, or other processes are deleting it.
 */
export async function deletePageOfWebhook(pool: Pool, limit: number): Promise<DeletionProgress | null> {
  return await inTransaction(pool, async (tx) => {
    const [deletion] = await sqlRows(
      tx,
      deletionRow,
      `SELECT webhook_id, requested_at, deleted FROM tds.webhook_deletions
       ORDER BY deleted, webhook_id LIMIT 1 FOR UPDATE SKIP LOCKED`,
    );
    if (deletion === undefined) return null;
    const { webhook_id: webhookId, requested_at: requestedAt } = deletion;
    const page = await deletePage(
      tx,
      'SELECT id FROM tds.webhook_deliveries WHERE webhook_id = $1 ORDER BY created_at DESC, id LIMIT $2',
      [webhookId, limit],
    );
    const { rowCount: left } = await tx.query(
      'SELECT 1 FROM tds.webhook_deliveries WHERE webhook_id = $1 ORDER BY created_at DESC, id LIMIT 1',
      [webhookId],
    );
    if (left === 0) await tx.query('DELETE FROM tds.webhook_deletions WHERE webhook_id = $1', [webhookId]);
    else {
      const note = 'UPDATE tds.webhook_deletions SET deleted = deleted + $2 WHERE webhook_id = $1';
      await tx.query(note, [webhookId, page]);
    }
    return { webhookId, requestedAt, page, deleted: deletion.deleted + page, isDone: left === 0 };
  });
}

/**
 * Deletes one page of the deliveries older than `maxAgeMs` that have no attempt left, and returns their number. Age is measured by
 * the earlier of the times of this host and of PostgreSQL: a host with a wrong clock deletes nothing too early.
 */
export async function deletePageOfOld(
  pool: Pool,
  { now, maxAgeMs }: { readonly now: number; readonly maxAgeMs: number },
  limit: number,
): Promise<number> {
  return await inTransaction(
    pool,
    async (tx) =>
      await deletePage(
        tx,
        `SELECT id FROM tds.webhook_deliveries
         WHERE created_at < least($1, (extract(epoch FROM now()) * 1000)::bigint) - $2::bigint AND due_at IS NULL
         ORDER BY created_at LIMIT $3`,
        [now, maxAgeMs, limit],
      ),
  );
}

/** When the `count`-th newest delivery of a webhook was stored, unix milliseconds; null: it has fewer. */
export async function createdAtOfNthNewest(
  db: Sql,
  webhookId: number,
  count: number,
): Promise<number | null> {
  const [row] = await sqlRows(
    db,
    z.object({ created_at: z.number() }),
    `SELECT created_at FROM tds.webhook_deliveries WHERE webhook_id = $1
     ORDER BY created_at DESC, id OFFSET $2 LIMIT 1`,
    [webhookId, count - 1],
  );
  return row?.created_at ?? null;
}

/** Whether more than `count` deliveries of a webhook wait for an attempt. */
export async function hasMoreWaiting(db: Sql, webhookId: number, count: number): Promise<boolean> {
  const { rowCount: more } = await db.query(
    `SELECT 1 FROM tds.webhook_deliveries WHERE webhook_id = $1 AND due_at IS NOT NULL
     ORDER BY due_at OFFSET $2 LIMIT 1`,
    [webhookId, count],
  );
  return more !== null && more > 0;
}

/**
 * Deletes one page of the deliveries of a webhook stored before a time that have no attempt left and are older than
 * `minAgeMs`, measured as by `deletePageOfOld`, and returns their number.
 */
export async function deletePageBefore(
  pool: Pool,
  { webhookId, before, now, minAgeMs }: Readonly<Record<'webhookId' | 'before' | 'now' | 'minAgeMs', number>>,
  limit: number,
): Promise<number> {
  return await inTransaction(
    pool,
    async (tx) =>
      await deletePage(
        tx,
        `SELECT id FROM tds.webhook_deliveries
         WHERE webhook_id = $1 AND created_at < $2 AND due_at IS NULL
           AND created_at < least($3, (extract(epoch FROM now()) * 1000)::bigint) - $4::bigint
         ORDER BY created_at, id DESC LIMIT $5`,
        [webhookId, before, now, minAgeMs, limit],
      ),
  );
}

/** Number of deleted webhooks that still have deliveries. */
export async function countDeletions(db: Sql): Promise<number> {
  return await countOf(db, 'SELECT count(*) AS n FROM tds.webhook_deletions');
}
