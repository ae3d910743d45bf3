import { z } from 'zod';

import { inTransaction, sqlRows } from '../../infra/postgres/client.ts';
import type { Pool, PoolClient, Sql } from '../../infra/postgres/client.ts';
import { ownerIsIn } from '../../projections/webhooks/queries.ts';
import type { DeliveryState, NextState } from './send/schedule.ts';

/** A delivery as it is made, and how it is kept. Times are unix milliseconds. */
export interface NewDelivery {
  readonly id: string;
  readonly webhookId: number;
  readonly event: string;
  /** JSON, sent as it is with every attempt. */
  readonly body: string;
  readonly createdAt: number;
  readonly isTest?: boolean;
  /** Of a transfer: what it is, and the block it is in. */
  readonly landing?: { readonly subject: string; readonly hash: string; readonly seq: number };
}

/** Makes deliveries, due at once; of one whose id is there only the block that its transfer is in may change. */
export async function insertDeliveries(tx: PoolClient, deliveries: readonly NewDelivery[]): Promise<void> {
  if (deliveries.length === 0) return;
  await tx.query(
    `INSERT INTO tds.webhook_deliveries AS known
       (id, webhook_id, event, body, created_at, is_test, scheduled_at, due_at, subject, landed_hash, landed_seq)
     SELECT id, webhook_id, event, body, created_at, is_test, created_at, created_at, subject, landed_hash, landed_seq
     FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::boolean[], $7::uuid[], $8::text[], $9::bigint[])
       AS made (id, webhook_id, event, body, created_at, is_test, subject, landed_hash, landed_seq)
     ON CONFLICT (id) DO UPDATE SET landed_hash = excluded.landed_hash, landed_seq = excluded.landed_seq, reverted_height = NULL,
       reverted_seq = NULL
       WHERE known.landed_seq < excluded.landed_seq`,
    [
      deliveries.map(({ id }) => id),
      deliveries.map(({ webhookId }) => webhookId),
      deliveries.map(({ event }) => event),
      deliveries.map(({ body }) => body),
      deliveries.map(({ createdAt }) => createdAt),
      deliveries.map(({ isTest = false }) => isTest),
      deliveries.map(({ landing }) => landing?.subject ?? null),
      deliveries.map(({ landing }) => landing?.hash ?? null),
      deliveries.map(({ landing }) => landing?.seq ?? null),
    ],
  );
  await wakeEndpoints(
    tx,
    deliveries.map(({ webhookId }) => webhookId),
    deliveries.reduce((earliest, { createdAt }) => Math.min(earliest, createdAt), Number.MAX_SAFE_INTEGER),
  );
}

/** Endpoints that have something to do at `dueAt`, or earlier. In order of their ids, as everyone locks them. */
export async function wakeEndpoints(tx: Sql, webhookIds: readonly number[], dueAt: number): Promise<void> {
  const ids = [...new Set(webhookIds)].toSorted((a, b) => a - b);
  await tx.query(
    `INSERT INTO tds.webhook_endpoints AS known (webhook_id, due_at)
     SELECT webhook_id, $2 FROM unnest($1::bigint[]) AS woken (webhook_id) ORDER BY webhook_id
     ON CONFLICT (webhook_id) DO UPDATE SET due_at = least(known.due_at, excluded.due_at)`,
    [ids, dueAt],
  );
}

/** An attempt that is this process's to make, until its lease ends. */
export interface Claim extends DeliveryState {
  readonly id: string;
  readonly webhookId: number;
  readonly event: string;
  readonly body: string;
  readonly isTest: boolean;
  readonly isManual: boolean;
  readonly lease: string;
  readonly activation: number;
  readonly url: string;
  readonly secrets: SealedSecrets;
}

/** How the webhook's secrets are kept, sealed for its user; `previous` is good until `previousUntil`. */
export interface SealedSecrets {
  readonly userId: number;
  readonly secret: string;
  readonly previous: string | null;
  readonly previousUntil: number | null;
}

const claimRow = z.object({
  id: z.string(),
  webhook_id: z.number(),
  event: z.string(),
  body: z.string(),
  is_test: z.boolean(),
  status: z.enum(['pending', 'success', 'failed', 'dead']),
  attempts: z.number(),
  scheduled_attempts: z.number(),
  scheduled_at: z.number().nullable(),
  manual_at: z.number().nullable(),
});
const takenRow = z.object({ webhook_id: z.number(), free: z.number() });
const endpointRow = takenRow.extend({
  is_open: z.boolean(),
  /** Its owner is not shut out. */
  is_let_in: z.boolean(),
  url: z.string(),
  activation: z.number(),
  user_id: z.number(),
  secret: z.string(),
  previous_secret: z.string().nullable(),
  previous_until: z.number().nullable(),
});

export interface ClaimOptions {
  /** Of the `webhooks` read model that is served. */
  readonly schema: string;
  readonly now: number;
  readonly lease: string;
  readonly leaseMs: number;
  /** Attempts to take, over all endpoints. */
  readonly most: number;
  /** Attempts that each endpoint may be given now; one that is not named may be given `otherwise`. */
  readonly room: ReadonlyMap<number, number>;
  readonly otherwise: number;
  /** Deliveries that died in a row, from which on a webhook counts as disabled. */
  readonly deadLimit: number;
  /** Deliveries that are not taken: what came of them is known here, and not written down yet. */
  readonly held: readonly string[];
}

/** What a webhook that is not active is given all the same: what was asked for by hand, and the first attempt of a test. */
const WHATEVER_THE_STATUS = '(manual_at IS NOT NULL OR (is_test AND attempts = 0))';

/**
 * Takes due deliveries, those of the endpoints that have waited longest first and a few of each, and leases them. Nobody
 * waits for a lock: what another process is looking at is that one's. Endpoints of a user who is shut out are put to rest.
 */
export async function claimDeliveries(pool: Pool, options: ClaimOptions): Promise<Claim[]> {
  const { schema, now, lease, leaseMs, most, room, otherwise, deadLimit, held } = options;
  return await inTransaction(pool, async (tx) => {
    const taken = await sqlRows(
      tx,
      takenRow,
      `SELECT e.webhook_id, coalesce(room.free, $4) AS free
       FROM tds.webhook_endpoints e JOIN ${schema}.webhooks w ON w.id = e.webhook_id
       LEFT JOIN unnest($2::bigint[], $3::integer[]) AS room (webhook_id, free) ON room.webhook_id = e.webhook_id
       WHERE e.due_at <= $1 AND coalesce(room.free, $4) > 0
       ORDER BY e.due_at LIMIT $5 FOR UPDATE OF e SKIP LOCKED`,
      [now, [...room.keys()], [...room.values()], otherwise, most],
    );
    if (taken.length === 0) return [];
    // Looked at once they are locked: a webhook that was made active before is seen, one that will be wakes its endpoint.
    const looked = await sqlRows(
      tx,
      endpointRow,
      `SELECT taken.*, w.user_id, w.url, w.activation, w.secret, w.previous_secret, w.previous_until,
         w.status = 'active' AND (e.activation <> w.activation OR e.consecutive_dead < $3) AS is_open,
         ${ownerIsIn(schema)} AS is_let_in
       FROM unnest($1::bigint[], $2::integer[]) WITH ORDINALITY AS taken (webhook_id, free, place)
       JOIN tds.webhook_endpoints e USING (webhook_id) JOIN ${schema}.webhooks w ON w.id = taken.webhook_id
       ORDER BY place`,
      [taken.map(({ webhook_id: id }) => id), taken.map(({ free }) => free), deadLimit],
    );
    const endpoints = looked.filter(({ is_let_in: isLetIn }) => isLetIn);
    await restEndpoints(
      tx,
      looked.filter(({ is_let_in: isLetIn }) => !isLetIn).map(({ webhook_id: id }) => id),
    );
    const lists = [
      endpoints.map(({ webhook_id: id }) => id),
      endpoints.map(({ free }) => free),
      endpoints.map(({ is_open: isOpen }) => isOpen),
    ];
    const rows = await sqlRows(
      tx,
      claimRow,
      `WITH endpoints AS (SELECT * FROM unnest($1::bigint[], $2::integer[], $3::boolean[]) AS e (webhook_id, free, is_open)),
       due AS (
         SELECT d.id FROM endpoints CROSS JOIN LATERAL (
           SELECT id FROM tds.webhook_deliveries
           WHERE webhook_id = endpoints.webhook_id AND due_at <= $4
             AND (endpoints.is_open OR ${WHATEVER_THE_STATUS}) AND id <> ALL ($8::uuid[])
           ORDER BY due_at LIMIT endpoints.free FOR UPDATE SKIP LOCKED
         ) AS d LIMIT $7
       )
       UPDATE tds.webhook_deliveries d SET lease = $5, due_at = $4::bigint + $6::bigint FROM due WHERE d.id = due.id
       RETURNING d.id, d.webhook_id, d.event, d.body, d.is_test, d.status, d.attempts, d.scheduled_attempts, d.scheduled_at,
         d.manual_at`,
      [...lists, now, lease, leaseMs, most, held],
    );
    await tx.query(
      `UPDATE tds.webhook_endpoints e SET due_at = (
         SELECT min(due_at) FROM tds.webhook_deliveries d
         WHERE d.webhook_id = e.webhook_id AND d.due_at IS NOT NULL AND (seen.is_open OR ${WHATEVER_THE_STATUS})
       )
       FROM unnest($1::bigint[], $2::boolean[]) AS seen (webhook_id, is_open) WHERE e.webhook_id = seen.webhook_id`,
      [lists[0], lists[2]],
    );
    const byId = new Map(endpoints.map((endpoint) => [endpoint.webhook_id, endpoint]));
    return rows.flatMap((row) => {
      const endpoint = byId.get(row.webhook_id);
      return endpoint === undefined ? [] : [claimOf(row, endpoint, { lease, now })];
    });
  });
}

/** Their owners are shut out: nothing is due until they are let in. */
async function restEndpoints(tx: PoolClient, ids: readonly number[]): Promise<void> {
  if (ids.length === 0) return;
  await tx.query(
    'UPDATE tds.webhook_endpoints SET due_at = NULL, shut_out = true WHERE webhook_id = ANY ($1::bigint[])',
    [ids],
  );
}

function claimOf(
  row: z.infer<typeof claimRow>,
  endpoint: z.infer<typeof endpointRow>,
  { lease, now }: { readonly lease: string; readonly now: number },
): Claim {
  const mayBeScheduled = endpoint.is_open || (row.is_test && row.attempts === 0);
  const isScheduled = mayBeScheduled && row.scheduled_at !== null && row.scheduled_at <= now;
  return {
    id: row.id,
    webhookId: row.webhook_id,
    event: row.event,
    body: row.body,
    isTest: row.is_test,
    status: row.status,
    attempts: row.attempts,
    scheduledAttempts: row.scheduled_attempts,
    scheduledAt: row.scheduled_at,
    manualAt: row.manual_at,
    // What the schedule wants by now goes before what was asked for by hand besides.
    isManual: row.manual_at !== null && !isScheduled,
    lease,
    activation: endpoint.activation,
    url: endpoint.url,
    secrets: {
      userId: endpoint.user_id,
      secret: endpoint.secret,
      previous: endpoint.previous_secret,
      previousUntil: endpoint.previous_until,
    },
  };
}

/** What became of an attempt. */
export interface Ended {
  readonly claim: Claim;
  readonly next: NextState;
  /** When it began; unix milliseconds. */
  readonly at: number;
  readonly durationMs: number;
  readonly responseCode: number | null;
  readonly responseBody: string | null;
  readonly error: string | null;
}

const idRow = z.object({ id: z.string() });

/** When an attempt was asked for by hand that this one, `r`, was not. */
const STILL_ASKED = `CASE WHEN r.status = 'success' OR (r.is_manual AND d.manual_at = r.asked_at) THEN NULL
  ELSE d.manual_at END`;

/**
 * Writes down what became of attempts, and what that makes of their webhooks. An attempt whose lease another process has
 * taken over meanwhile changes nothing. What was asked for by hand while it ran still stands.
 */
export async function endAttempts(pool: Pool, ended: readonly Ended[]): Promise<void> {
  if (ended.length === 0) return;
  await inTransaction(pool, async (tx) => {
    const kept = await sqlRows(
      tx,
      idRow,
      `UPDATE tds.webhook_deliveries d SET
         status = r.status, attempts = r.attempts, scheduled_attempts = r.scheduled_attempts, manual = r.is_manual,
         scheduled_at = r.scheduled_at, manual_at = ${STILL_ASKED}, due_at = least(r.scheduled_at, ${STILL_ASKED}),
         lease = NULL, response_code = r.response_code, response_body = r.response_body, error = r.error,
         duration_ms = r.duration_ms, last_attempt_at = r.at
       FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::integer[], $5::integer[], $6::boolean[], $7::bigint[],
         $8::integer[], $9::text[], $10::text[], $11::integer[], $12::bigint[], $13::bigint[])
         AS r (id, lease, status, attempts, scheduled_attempts, is_manual, scheduled_at, response_code, response_body, error,
           duration_ms, at, asked_at)
       WHERE d.id = r.id AND d.lease = r.lease
       RETURNING d.id`,
      [
        ended.map(({ claim }) => claim.id),
        ended.map(({ claim }) => claim.lease),
        ended.map(({ next }) => next.status),
        ended.map(({ next }) => next.attempts),
        ended.map(({ next }) => next.scheduledAttempts),
        ended.map(({ claim }) => claim.isManual),
        ended.map(({ next }) => next.scheduledAt),
        ended.map(({ responseCode }) => responseCode),
        ended.map(({ responseBody }) => responseBody),
        ended.map(({ error }) => error),
        ended.map(({ durationMs }) => durationMs),
        ended.map(({ at }) => at),
        ended.map(({ claim }) => claim.manualAt),
      ],
    );
    const ids = new Set(kept.map(({ id }) => id));
    await endOnEndpoints(
      tx,
      ended.filter(({ claim }) => ids.has(claim.id)),
    );
  });
}

/** A success ends a row of dead deliveries, and each death is one more; those of another activation do not count. */
async function endOnEndpoints(tx: PoolClient, ended: readonly Ended[]): Promise<void> {
  const streaks = [...Map.groupBy(ended, ({ claim }) => claim.webhookId)]
    .toSorted(([a], [b]) => a - b)
    .map(([webhookId, attempts]) => {
      const activation = Math.max(...attempts.map(({ claim }) => claim.activation));
      const counting = attempts.filter(({ claim }) => !claim.isTest && claim.activation === activation);
      const lastSuccess = counting.findLastIndex(({ next }) => next.status === 'success');
      return {
        webhookId,
        activation,
        hasSucceeded: lastSuccess !== -1,
        deaths: counting.slice(lastSuccess + 1).filter(({ next }) => next.hasDied).length,
        at: Math.max(...attempts.map(({ at }) => at)),
        // Where one is due now, the claim finds the least of all.
        dueAt: attempts.reduce<number | null>(
          (least, { next: { dueAt } }) =>
            dueAt !== null && (least === null || dueAt < least) ? dueAt : least,
          null,
        ),
      };
    });
  const ids = streaks.map(({ webhookId }) => webhookId);
  await tx.query(
    'SELECT 1 FROM tds.webhook_endpoints WHERE webhook_id = ANY ($1::bigint[]) ORDER BY webhook_id FOR UPDATE',
    [ids],
  );
  await tx.query(
    `UPDATE tds.webhook_endpoints e SET
       consecutive_dead = CASE
         WHEN e.activation > r.activation THEN e.consecutive_dead
         WHEN r.has_succeeded OR e.activation < r.activation THEN r.deaths
         ELSE e.consecutive_dead + r.deaths END,
       activation = greatest(e.activation, r.activation),
       last_delivery_at = greatest(e.last_delivery_at, r.at),
       due_at = least(e.due_at, r.due_at,
         (SELECT min(d.manual_at) FROM tds.webhook_deliveries d WHERE d.id = ANY ($7::uuid[]) AND d.webhook_id = r.webhook_id),
         -- What was passed over while too many were dead waits no longer.
         CASE WHEN r.has_succeeded AND e.consecutive_dead > 0 THEN 0 END)
     FROM unnest($1::bigint[], $2::bigint[], $3::boolean[], $4::integer[], $5::bigint[], $6::bigint[])
       AS r (webhook_id, activation, has_succeeded, deaths, at, due_at)
     WHERE e.webhook_id = r.webhook_id`,
    [
      ids,
      streaks.map(({ activation }) => activation),
      streaks.map(({ hasSucceeded }) => hasSucceeded),
      streaks.map(({ deaths }) => deaths),
      streaks.map(({ at }) => at),
      streaks.map(({ dueAt }) => dueAt),
      ended.map(({ claim }) => claim.id),
    ],
  );
}

/** Gives back attempts that were not made: they are due as they were. */
export async function releaseClaims(pool: Pool, claims: readonly Claim[]): Promise<void> {
  if (claims.length === 0) return;
  await inTransaction(pool, async (tx) => {
    const released = await sqlRows(
      tx,
      z.object({ webhook_id: z.number() }),
      `UPDATE tds.webhook_deliveries d SET lease = NULL, due_at = least(scheduled_at, manual_at)
       FROM unnest($1::uuid[], $2::uuid[]) AS r (id, lease) WHERE d.id = r.id AND d.lease = r.lease
       RETURNING d.webhook_id`,
      [claims.map(({ id }) => id), claims.map(({ lease }) => lease)],
    );
    await wakeEndpoints(
      tx,
      released.map(({ webhook_id: id }) => id),
      0,
    );
  });
}

/** An attempt asked for by hand, of a delivery that is no success. While one runs, it comes after that. */
export async function retryDelivery(
  tx: PoolClient,
  { webhookId, id, at }: { readonly webhookId: number; readonly id: string; readonly at: number },
): Promise<void> {
  const [asked] = await sqlRows(
    tx,
    z.object({ due_at: z.number() }),
    `UPDATE tds.webhook_deliveries
     SET manual_at = $3, due_at = CASE WHEN lease IS NULL THEN least(scheduled_at, $3) ELSE due_at END
     WHERE id = $1 AND webhook_id = $2 AND status <> 'success' RETURNING due_at`,
    [id, webhookId, at],
  );
  if (asked !== undefined) await wakeEndpoints(tx, [webhookId], asked.due_at);
}

export async function deleteDeliveries(tx: PoolClient, webhookId: number): Promise<void> {
  await tx.query('DELETE FROM tds.webhook_deliveries WHERE webhook_id = $1', [webhookId]);
  await tx.query('DELETE FROM tds.webhook_endpoints WHERE webhook_id = $1', [webhookId]);
}

/** Webhooks that were made active: what died before is forgiven, and what waited is due. */
export async function reopenEndpoints(
  pool: Pool,
  active: readonly { readonly id: number; readonly activation: number }[],
): Promise<void> {
  if (active.length === 0) return;
  const sorted = active.toSorted((a, b) => a.id - b.id);
  await inTransaction(pool, async (tx) => {
    const ids = sorted.map(({ id }) => id);
    await tx.query(
      'SELECT 1 FROM tds.webhook_endpoints WHERE webhook_id = ANY ($1::bigint[]) ORDER BY webhook_id FOR UPDATE',
      [ids],
    );
    await tx.query(
      `UPDATE tds.webhook_endpoints e SET activation = r.activation, consecutive_dead = 0, due_at = 0
       FROM unnest($1::bigint[], $2::bigint[]) AS r (webhook_id, activation)
       WHERE e.webhook_id = r.webhook_id AND e.activation < r.activation`,
      [ids, sorted.map(({ activation }) => activation)],
    );
  });
}

/** Webhooks whose owners were let in: what rested is due. */
export async function letInEndpoints(pool: Pool, ids: readonly number[]): Promise<void> {
  if (ids.length === 0) return;
  await pool.query(
    `UPDATE tds.webhook_endpoints e SET due_at = 0, shut_out = false
     FROM (
       SELECT webhook_id FROM tds.webhook_endpoints WHERE webhook_id = ANY ($1::bigint[]) ORDER BY webhook_id FOR UPDATE
     ) AS locked WHERE e.webhook_id = locked.webhook_id AND e.shut_out`,
    [ids],
  );
}

const countRow = z.object({ n: z.number() });

/** Endpoints with something to do. */
export async function countDue(db: Sql, now: number): Promise<number> {
  const [row] = await sqlRows(
    db,
    countRow,
    'SELECT count(*) AS n FROM tds.webhook_endpoints WHERE due_at <= $1',
    [now],
  );
  return row?.n ?? 0;
}

/** Deletes what was made before, but for what has still to be tried, and what is left of webhooks that are gone. */
export async function forgetDeliveries(pool: Pool, schema: string, before: number): Promise<void> {
  await pool.query('DELETE FROM tds.webhook_deliveries WHERE created_at < $1 AND due_at IS NULL', [before]);
  for (const table of ['webhook_deliveries', 'webhook_endpoints']) {
    await pool.query(
      `DELETE FROM tds.${table} d WHERE NOT EXISTS (SELECT 1 FROM ${schema}.webhooks w WHERE w.id = d.webhook_id)`,
    );
  }
}
