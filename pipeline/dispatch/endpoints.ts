import { z } from 'zod';

import { countOf, inTransaction, sqlRows } from '../../infra/postgres/client.ts';
import type { Pool, PoolClient, Sql } from '../../infra/postgres/client.ts';
import { ownerIsEnabled } from '../../projections/webhooks/queries.ts';

/**
 * `tds.webhook_endpoints`: one row a webhook, from which due deliveries are claimed. Every writer locks the rows in the
 * order of their ids, so that no two deadlock.
 */

/** Makes endpoints due at `dueAt` unless they are due earlier; adds those that are missing. */
export async function scheduleEndpoints(
  tx: Sql,
  webhookIds: readonly number[],
  dueAt: number,
): Promise<void> {
  const ids = [...new Set(webhookIds)].toSorted((a, b) => a - b);
  await tx.query(
    `INSERT INTO tds.webhook_endpoints AS stored (webhook_id, due_at)
     SELECT webhook_id, $2 FROM unnest($1::bigint[]) AS scheduled (webhook_id) ORDER BY webhook_id
     ON CONFLICT (webhook_id) DO UPDATE SET due_at = least(stored.due_at, excluded.due_at)`,
    [ids, dueAt],
  );
}

export async function lockEndpoints(tx: PoolClient, webhookIds: readonly number[]): Promise<void> {
  await tx.query(
    'SELECT 1 FROM tds.webhook_endpoints WHERE webhook_id = ANY ($1::bigint[]) ORDER BY webhook_id FOR UPDATE',
    [webhookIds],
  );
}

const activationRow = z.object({ id: z.number(), activation: z.number() });
export type Activation = z.infer<typeof activationRow>;

/** Active webhooks that were activated since their endpoint was last updated. */
export async function activatedWebhooks(db: Sql, schema: string): Promise<Activation[]> {
  return await sqlRows(
    db,
    activationRow,
    `SELECT w.id, w.activation FROM tds.webhook_endpoints e JOIN ${schema}.webhooks w ON w.id = e.webhook_id
     WHERE w.status = 'active' AND e.activation < w.activation`,
  );
}

/** Resets the count of dead deliveries of webhooks that were activated, and makes their waiting deliveries due. */
export async function activateEndpoints(pool: Pool, activated: readonly Activation[]): Promise<void> {
  if (activated.length === 0) return;
  const sorted = activated.toSorted((a, b) => a.id - b.id);
  await inTransaction(pool, async (tx) => {
    const ids = sorted.map(({ id }) => id);
    await lockEndpoints(tx, ids);
    await tx.query(
      `UPDATE tds.webhook_endpoints e SET activation = r.activation, consecutive_dead = 0, due_at = 0
       FROM unnest($1::bigint[], $2::bigint[]) AS r (webhook_id, activation)
       WHERE e.webhook_id = r.webhook_id AND e.activation < r.activation`,
      [ids, sorted.map(({ activation }) => activation)],
    );
  });
}

/** Endpoints that were paused while their owner was disabled, of owners that are enabled again. */
export async function endpointsOfReenabledOwners(db: Sql, schema: string): Promise<number[]> {
  const rows = await sqlRows(
    db,
    z.object({ id: z.number() }),
    `SELECT w.id FROM tds.webhook_endpoints e JOIN ${schema}.webhooks w ON w.id = e.webhook_id
     WHERE e.owner_disabled AND ${ownerIsEnabled(schema)}`,
  );
  return rows.map(({ id }) => id);
}

/** Makes the deliveries due that were paused while the owner was disabled. */
export async function reenableEndpointsOfOwners(pool: Pool, ids: readonly number[]): Promise<void> {
  if (ids.length === 0) return;
  await pool.query(
    `UPDATE tds.webhook_endpoints e SET due_at = 0, owner_disabled = false
     FROM (
       SELECT webhook_id FROM tds.webhook_endpoints WHERE webhook_id = ANY ($1::bigint[]) ORDER BY webhook_id FOR UPDATE
     ) AS locked WHERE e.webhook_id = locked.webhook_id AND e.owner_disabled`,
    [ids],
  );
}

const deadRow = activationRow.extend({ consecutive_dead: z.number() });

/** Active webhooks with at least `deadLimit` dead deliveries in a row. */
export async function webhooksToDisable(
  db: Sql,
  schema: string,
  deadLimit: number,
): Promise<z.infer<typeof deadRow>[]> {
  return await sqlRows(
    db,
    deadRow,
    `SELECT w.id, w.activation, e.consecutive_dead
     FROM tds.webhook_endpoints e JOIN ${schema}.webhooks w ON w.id = e.webhook_id
     WHERE e.consecutive_dead >= $1 AND w.status = 'active' AND e.activation = w.activation`,
    [deadLimit],
  );
}

/** Number of endpoints with a delivery that is due. */
export async function countDueEndpoints(db: Sql, now: number): Promise<number> {
  return await countOf(db, 'SELECT count(*) AS n FROM tds.webhook_endpoints WHERE due_at <= $1', [now]);
}
