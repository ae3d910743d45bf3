import { z } from 'zod';

import { inTransaction, sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool, PoolClient, Sql } from '../../../infra/postgres/client.ts';
import { ownerIsEnabled } from '../../../projections/webhooks/queries.ts';
import { scheduleEndpoints } from '../endpoints.ts';
import { DELIVERY_STATUSES } from '../queries.ts';
import type { Capacity } from './endpoint-limits.ts';
import type { DeliveryState } from './schedule.ts';

/** An attempt that this process makes, while its lease lasts. */
export interface DeliveryClaim extends DeliveryState {
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

/** The webhook's secrets, sealed for its user; `previous` is valid until `previousUntil`. */
export interface SealedSecrets {
  readonly userId: number;
  readonly secret: string;
  readonly previous: string | null;
  readonly previousUntil: number | null;
}

export interface ClaimOptions extends Capacity {
  /** Of the served build of `webhooks`. */
  readonly schema: string;
  readonly now: number;
  readonly lease: string;
  readonly leaseMs: number;
  /** Dead deliveries in a row from which on a webhook counts as disabled. */
  readonly deadLimit: number;
  /** Deliveries that are not claimed again: this process has their outcome, and has not stored it yet. */
  readonly inFlight: readonly string[];
}

const dueEndpointRow = z.object({ webhook_id: z.number(), free: z.number() });
const endpointRow = dueEndpointRow.extend({
  is_open: z.boolean(),
  owner_enabled: z.boolean(),
  url: z.string(),
  activation: z.number(),
  user_id: z.number(),
  secret: z.string(),
  previous_secret: z.string().nullable(),
  previous_until: z.number().nullable(),
});
type Endpoint = z.infer<typeof endpointRow>;
const deliveryRow = z.object({
  id: z.string(),
  webhook_id: z.number(),
  event: z.string(),
  body: z.string(),
  is_test: z.boolean(),
  status: z.enum(DELIVERY_STATUSES),
  attempts: z.number(),
  scheduled_attempts: z.number(),
  scheduled_at: z.number().nullable(),
  manual_at: z.number().nullable(),
});

/**
 * Attempts that are made although the webhook is not active: manual ones, and the first attempt of a test. They have an index of
 * their own: all others, of which there may be a million, stay due meanwhile.
 */
const DUE_EVEN_IF_INACTIVE = '(manual_at IS NOT NULL OR (is_test AND attempts = 0))';

/**
 * Claims due deliveries, those of the endpoints that have waited longest first, some of each. Rows that another process
 * has locked are left to it. Endpoints of disabled users are paused.
 */
export async function claimDeliveries(pool: Pool, options: ClaimOptions): Promise<DeliveryClaim[]> {
  return await inTransaction(pool, async (tx) => {
    const endpoints = await lockDueEndpoints(tx, options);
    if (endpoints.length === 0) return [];
    const [enabled, disabled] = [true, false].map((isEnabled) =>
      endpoints.filter(({ owner_enabled: ownerEnabled }) => ownerEnabled === isEnabled),
    ) as [Endpoint[], Endpoint[]];
    await pauseEndpoints(tx, disabled);
    const open = await leaseDeliveries(
      tx,
      enabled.filter((endpoint) => endpoint.is_open),
      'true',
      options,
    );
    const closed = enabled.filter((endpoint) => !endpoint.is_open);
    const rest = { ...options, limit: options.limit - open.length };
    return [...open, ...(await leaseDeliveries(tx, closed, DUE_EVEN_IF_INACTIVE, rest))];
  });
}

/** When the next delivery is due, in unix milliseconds; in the past if one waits already; null: there is none. */
export async function firstDueAt(db: Sql): Promise<number | null> {
  const [row] = await sqlRows(
    db,
    z.object({ first: z.number().nullable() }),
    'SELECT min(due_at) AS first FROM tds.webhook_endpoints',
  );
  return row?.first ?? null;
}

async function lockDueEndpoints(
  tx: PoolClient,
  { schema, now, limit, perEndpoint, perOtherEndpoint, deadLimit }: ClaimOptions,
): Promise<Endpoint[]> {
  const due = await sqlRows(
    tx,
    dueEndpointRow,
    `SELECT e.webhook_id, coalesce(capacity.free, $4) AS free
     FROM tds.webhook_endpoints e JOIN ${schema}.webhooks w ON w.id = e.webhook_id
     LEFT JOIN unnest($2::bigint[], $3::integer[]) AS capacity (webhook_id, free) ON capacity.webhook_id = e.webhook_id
     WHERE e.due_at <= $1 AND coalesce(capacity.free, $4) > 0
     ORDER BY e.due_at LIMIT $5 FOR UPDATE OF e SKIP LOCKED`,
    [now, [...perEndpoint.keys()], [...perEndpoint.values()], perOtherEndpoint, limit],
  );
  if (due.length === 0) return [];
  // Read after the lock: a webhook activated before it is seen here, and one activated later schedules its endpoint.
  return await sqlRows(
    tx,
    endpointRow,
    `SELECT due.*, w.user_id, w.url, w.activation, w.secret, w.previous_secret, w.previous_until,
       w.status = 'active' AND (e.activation <> w.activation OR e.consecutive_dead < $3) AS is_open,
       ${ownerIsEnabled(schema)} AS owner_enabled
     FROM unnest($1::bigint[], $2::integer[]) WITH ORDINALITY AS due (webhook_id, free, place)
     JOIN tds.webhook_endpoints e USING (webhook_id) JOIN ${schema}.webhooks w ON w.id = due.webhook_id
     ORDER BY place`,
    [due.map(({ webhook_id: id }) => id), due.map(({ free }) => free), deadLimit],
  );
}

/** Nothing of a disabled owner is due until it is enabled again. */
async function pauseEndpoints(tx: PoolClient, endpoints: readonly Endpoint[]): Promise<void> {
  if (endpoints.length === 0) return;
  await tx.query(
    'UPDATE tds.webhook_endpoints SET due_at = NULL, owner_disabled = true WHERE webhook_id = ANY ($1::bigint[])',
    [endpoints.map(({ webhook_id: id }) => id)],
  );
}

/** @param condition SQL over deliveries: those that these endpoints may be sent */
async function leaseDeliveries(
  tx: PoolClient,
  endpoints: readonly Endpoint[],
  condition: string,
  { now, lease, leaseMs, limit, inFlight }: ClaimOptions,
): Promise<DeliveryClaim[]> {
  if (endpoints.length === 0) return [];
  const ids = endpoints.map(({ webhook_id: id }) => id);
  const rows = await sqlRows(
    tx,
    deliveryRow,
    `WITH due AS (
       SELECT d.id FROM unnest($1::bigint[], $2::integer[]) AS e (webhook_id, free) CROSS JOIN LATERAL (
         SELECT id FROM tds.webhook_deliveries
         WHERE webhook_id = e.webhook_id AND due_at <= $3 AND ${condition} AND id <> ALL ($7::uuid[])
         ORDER BY due_at LIMIT e.free FOR UPDATE SKIP LOCKED
       ) AS d LIMIT $6
     )
     UPDATE tds.webhook_deliveries d SET lease = $4, due_at = $3::bigint + $5::bigint FROM due WHERE d.id = due.id
     RETURNING d.id, d.webhook_id, d.event, d.body, d.is_test, d.status, d.attempts, d.scheduled_attempts, d.scheduled_at,
       d.manual_at`,
    [ids, endpoints.map(({ free }) => free), now, lease, leaseMs, limit, inFlight],
  );
  await tx.query(
    `UPDATE tds.webhook_endpoints e SET due_at = (
       SELECT min(due_at) FROM tds.webhook_deliveries d
       WHERE d.webhook_id = e.webhook_id AND d.due_at IS NOT NULL AND ${condition}
     ) WHERE e.webhook_id = ANY ($1::bigint[])`,
    [ids],
  );
  const byId = new Map(endpoints.map((endpoint) => [endpoint.webhook_id, endpoint]));
  return rows.flatMap((row) => {
    const endpoint = byId.get(row.webhook_id);
    return endpoint === undefined ? [] : [claimOf(row, endpoint, { lease, now })];
  });
}

function claimOf(
  row: z.infer<typeof deliveryRow>,
  endpoint: Endpoint,
  { lease, now }: { readonly lease: string; readonly now: number },
): DeliveryClaim {
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
    // A due scheduled attempt goes before a manual one.
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

/** Releases the leases of attempts that were not made: they are due as before. */
export async function releaseClaims(pool: Pool, claims: readonly DeliveryClaim[]): Promise<void> {
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
    const ids = released.map(({ webhook_id: id }) => id);
    await scheduleEndpoints(tx, ids, 0);
  });
}
