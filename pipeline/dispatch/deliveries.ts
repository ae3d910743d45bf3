import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { PoolClient } from '../../infra/postgres/client.ts';
import { createYielding } from '../../infra/yielding.ts';
import { scheduleEndpoints } from './endpoints.ts';

/** A delivery to be stored. Times are unix milliseconds. */
export interface NewDelivery {
  readonly id: string;
  readonly webhookId: number;
  readonly event: string;
  /** JSON, sent unchanged with every attempt. */
  readonly body: string;
  readonly createdAt: number;
  readonly isTest?: boolean;
  /** Of a transfer or a balance: its id, and the block that includes it. */
  readonly inclusion?: { readonly subject: string; readonly hash: string; readonly seq: number };
}

/** Deliveries of one statement: some 3 MB of bodies. */
const PAGE = 5000;

/**
 * Calls `store` for pages of what is given, of which only one is kept at a time, then makes the webhooks due. Returns the sum of
 * what `store` returned.
 */
export async function storeInPages<T extends Pick<NewDelivery, 'webhookId' | 'createdAt'>>(
  tx: PoolClient,
  given: Iterable<T>,
  store: (page: readonly T[]) => Promise<number>,
): Promise<number> {
  const yielding = createYielding();
  const webhooks = new Set<number>();
  let earliest = Number.MAX_SAFE_INTEGER;
  let sum = 0;
  let page: T[] = [];
  for (const one of given) {
    webhooks.add(one.webhookId);
    earliest = Math.min(earliest, one.createdAt);
    page.push(one);
    await yielding();
    if (page.length < PAGE) continue;
    sum += await store(page);
    page = [];
  }
  if (page.length > 0) sum += await store(page);
  // Once, for all of them: it locks rows in the order of their ids.
  if (webhooks.size > 0) await scheduleEndpoints(tx, [...webhooks], earliest);
  return sum;
}

/** Stores deliveries, due at once; returns how many were given. */
export async function insertDeliveries(tx: PoolClient, given: Iterable<NewDelivery>): Promise<number> {
  return await storeInPages(tx, given, async (page) => {
    await insertPage(tx, page);
    return page.length;
  });
}

/** Idempotent: an id that is stored already only gets a later inclusion. The webhooks are not due yet. */
export async function insertPage(tx: PoolClient, given: readonly NewDelivery[]): Promise<void> {
  if (given.length === 0) return;
  // One statement cannot insert an id twice.
  const deliveries = [...new Map(given.map((delivery) => [delivery.id, delivery])).values()];
  await tx.query(
    `INSERT INTO tds.webhook_deliveries AS stored
       (id, webhook_id, event, body, created_at, is_test, scheduled_at, due_at, subject, block_hash, block_seq)
     SELECT id, webhook_id, event, body, created_at, is_test, created_at, created_at, subject, block_hash, block_seq
     FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::boolean[], $7::uuid[], $8::text[], $9::bigint[])
       AS made (id, webhook_id, event, body, created_at, is_test, subject, block_hash, block_seq)
     ON CONFLICT (id) DO UPDATE SET block_hash = excluded.block_hash, block_seq = excluded.block_seq, reverted_height = NULL,
       reverted_seq = NULL
       WHERE stored.block_seq < excluded.block_seq`,
    [
      deliveries.map(({ id }) => id),
      deliveries.map(({ webhookId }) => webhookId),
      deliveries.map(({ event }) => event),
      deliveries.map(({ body }) => body),
      deliveries.map(({ createdAt }) => createdAt),
      deliveries.map(({ isTest = false }) => isTest),
      deliveries.map(({ inclusion }) => inclusion?.subject ?? null),
      deliveries.map(({ inclusion }) => inclusion?.hash ?? null),
      deliveries.map(({ inclusion }) => inclusion?.seq ?? null),
    ],
  );
}

/** Schedules a manual attempt of a delivery that has not succeeded; after the attempt that is under way, if any. */
export async function retryDelivery(
  tx: PoolClient,
  { webhookId, id, at }: { readonly webhookId: number; readonly id: string; readonly at: number },
): Promise<void> {
  const [scheduled] = await sqlRows(
    tx,
    z.object({ due_at: z.number() }),
    `UPDATE tds.webhook_deliveries
     SET manual_at = $3, due_at = CASE WHEN lease IS NULL THEN least(scheduled_at, $3) ELSE due_at END
     WHERE id = $1 AND webhook_id = $2 AND status <> 'success' RETURNING due_at`,
    [id, webhookId, at],
  );
  if (scheduled !== undefined) await scheduleEndpoints(tx, [webhookId], scheduled.due_at);
}
