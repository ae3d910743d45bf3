import { z } from 'zod';

import { countOf, sqlRow, sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import type { WebhookRow } from '../../projections/webhooks/queries.ts';
import { DELIVERED_EVENTS } from '../../schemas/webhooks/events.ts';

/** The dispatcher's tables as the API reads them: deliveries, and the state of each webhook's endpoint. Times are unix milliseconds. */

const endpointRow = z.object({
  webhook_id: z.number(),
  activation: z.number(),
  consecutive_dead: z.number(),
  last_delivery_at: z.number().nullable(),
});

export interface EndpointState {
  /** Dead deliveries in a row since the webhook was last activated. */
  readonly consecutive_dead: number;
  readonly last_delivery_at: number | null;
}

/** By webhook id; a webhook that never had a delivery is missing. */
export async function endpointStates(
  db: Sql,
  webhooks: readonly Pick<WebhookRow, 'id' | 'activation'>[],
): Promise<ReadonlyMap<number, EndpointState>> {
  const rows = await sqlRows(
    db,
    endpointRow,
    `SELECT webhook_id, activation, consecutive_dead, last_delivery_at
     FROM tds.webhook_endpoints WHERE webhook_id = ANY($1)`,
    [webhooks.map(({ id }) => id)],
  );
  const activations = new Map(webhooks.map(({ id, activation }) => [id, activation]));
  return new Map(
    rows.map(({ webhook_id: id, activation, ...state }) => [
      id,
      activations.get(id) === activation ? state : { ...state, consecutive_dead: 0 },
    ]),
  );
}

export const DELIVERY_STATUSES = ['pending', 'success', 'failed', 'dead'] as const;

const deliveryRow = z.object({
  id: z.string(),
  event: z.enum(DELIVERED_EVENTS),
  status: z.enum(DELIVERY_STATUSES),
  /** Attempts that have ended. */
  attempts: z.number(),
  response_code: z.number().nullable(),
  response_body: z.string().nullable(),
  error: z.string().nullable(),
  duration_ms: z.number().nullable(),
  /** JSON, as sent. */
  body: z.string(),
  /** The last attempt was requested by hand. */
  manual: z.boolean(),
  created_at: z.number(),
  last_attempt_at: z.number().nullable(),
  next_attempt_at: z.number().nullable(),
});
export type Delivery = z.infer<typeof deliveryRow>;

/**
 * The next attempt is the scheduled or the manual one, whichever is earlier (`least` ignores nulls). The schedule of an
 * inactive webhook is paused, except for the first attempt of a test.
 */
const selectDeliveries = ({ status }: Pick<WebhookRow, 'status'>): string => `
  SELECT id, event, status, attempts, response_code, response_body, error, duration_ms, body, manual, created_at,
    last_attempt_at, least(
      ${status === 'active' ? 'scheduled_at' : 'CASE WHEN is_test AND attempts = 0 THEN scheduled_at END'}, manual_at
    ) AS next_attempt_at
  FROM tds.webhook_deliveries`;

export interface DeliveryFilters {
  readonly status?: Delivery['status'] | undefined;
  readonly event?: Delivery['event'] | undefined;
}

/**
 * Selects the keys of the deliveries that pass the filters: from one range of an index, or from one for each event or status
 * that a filter leaves open. `ofEach` ends the statement of each range, and `given` are the values of its parameters.
 */
function selectKeys(
  webhookId: number,
  { status, event }: DeliveryFilters,
  ofEach = '',
  given: readonly number[] = [],
): { readonly text: string; readonly params: unknown[] } {
  const params: unknown[] = [webhookId, ...given];
  const where = (condition: string): string =>
    `(SELECT created_at, id FROM tds.webhook_deliveries WHERE webhook_id = $1 ${condition} ${ofEach})`;
  if (status === undefined && event === undefined) return { text: where(''), params };
  const events = event === undefined ? DELIVERED_EVENTS : [event];
  const statuses = status === undefined ? DELIVERY_STATUSES : [status];
  const ranges = events.flatMap((name) =>
    statuses.map((one) => where(`AND event = $${params.push(name)} AND status = $${params.push(one)}`)),
  );
  return { text: ranges.join(' UNION ALL '), params };
}

/** Highest exact count; above it the planner's estimate is returned. */
const MAX_EXACT_COUNT = 10_000;

const planRow = z.object({
  'QUERY PLAN': z.tuple([z.object({ Plan: z.object({ 'Plan Rows': z.number() }) })]),
});

export async function countDeliveries(
  db: Sql,
  webhookId: number,
  filters: DeliveryFilters,
): Promise<{ readonly count: number; readonly isEstimate: boolean }> {
  const most = MAX_EXACT_COUNT + 1;
  const limited = selectKeys(webhookId, filters, 'LIMIT $2', [most]);
  const n = await countOf(
    db,
    `SELECT count(*) AS n FROM (SELECT 1 FROM (${limited.text}) AS keys LIMIT $2) AS counted`,
    limited.params,
  );
  if (n <= MAX_EXACT_COUNT) return { count: n, isEstimate: false };
  const { text, params } = selectKeys(webhookId, filters);
  const [plan] = await sqlRows(db, planRow, `EXPLAIN (FORMAT JSON) ${text}`, params);
  return { count: Math.max(n, plan?.['QUERY PLAN'][0].Plan['Plan Rows'] ?? 0), isEstimate: true };
}

/**
 * Newest first. The last page is read from the other end. Deliveries before the page are skipped in the index; only those of
 * the page are read, with their bodies.
 */
export async function listDeliveries(
  db: Sql,
  webhook: Pick<WebhookRow, 'id' | 'status'>,
  filters: DeliveryFilters,
  { offset: asked, limit }: { readonly offset: number | 'last'; readonly limit: number },
): Promise<Delivery[]> {
  const [offset, order] = asked === 'last' ? [0, 'created_at, id DESC'] : [asked, 'created_at DESC, id'];
  const ofEach = `ORDER BY ${order} LIMIT $2`;
  const keys = selectKeys(webhook.id, filters, ofEach, [offset + limit, offset, limit]);
  return await sqlRows(
    db,
    deliveryRow,
    `${selectDeliveries(webhook)}
     WHERE id = ANY (ARRAY(SELECT id FROM (${keys.text}) AS keys ORDER BY ${order} OFFSET $3 LIMIT $4))
     ORDER BY created_at DESC, id`,
    keys.params,
  );
}

export async function findDelivery(
  db: Sql,
  webhook: Pick<WebhookRow, 'id' | 'status'>,
  id: string,
): Promise<Delivery | null> {
  return await sqlRow(db, deliveryRow, `${selectDeliveries(webhook)} WHERE webhook_id = $1 AND id = $2`, [
    webhook.id,
    id,
  ]);
}

/** Unix milliseconds, both inclusive. */
export interface Period {
  readonly from: number;
  readonly to: number;
}

/** Most deliveries that are counted for one answer: a fraction of a second. */
export const MAX_COUNTED = 100_000;

const periodRow = z.object({
  start: z.number(),
  success: z.number(),
  pending: z.number(),
  failed: z.number(),
  dead: z.number(),
  median: z.number().nullable(),
  p95: z.number().nullable(),
});
export type DeliveryPeriod = z.infer<typeof periodRow>;

/**
 * The newest `MAX_COUNTED` deliveries of a period by steps of its time, oldest first: how many have which status, and the
 * durations of their last attempts in milliseconds. Steps without a delivery are missing.
 */
export async function deliveryPeriods(
  db: Sql,
  webhookId: number,
  { from, to }: Period,
  stepMs: number,
): Promise<DeliveryPeriod[]> {
  const counts = DELIVERY_STATUSES.map((one) => `count(*) FILTER (WHERE status = '${one}') AS ${one}`);
  return await sqlRows(
    db,
    periodRow,
    `SELECT created_at - created_at % $4::bigint AS start, ${counts.join(', ')},
       percentile_disc(0.5) WITHIN GROUP (ORDER BY duration_ms) AS median,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY duration_ms) AS p95
     FROM (
       SELECT created_at, status, duration_ms FROM tds.webhook_deliveries
       WHERE webhook_id = $1 AND created_at BETWEEN $2 AND $3 ORDER BY created_at DESC, id LIMIT ${MAX_COUNTED}
     ) AS newest
     GROUP BY start ORDER BY start`,
    [webhookId, from, to, stepMs],
  );
}

const failedRow = z.object({ id: z.string(), n: z.number() });

/**
 * Failed and dead deliveries of a period, newest first, from below another one, and how many remain, up to `MAX_EXACT_COUNT`.
 * Those for which a manual attempt is due already are left out. Deliveries that succeeded are not read: the index has a range
 * for each event and status.
 */
export async function failedDeliveries(
  db: Sql,
  webhookId: number,
  { from, to }: Period,
  { after, limit }: { readonly after: string | null; readonly limit: number },
): Promise<{ readonly ids: readonly string[]; readonly remaining: number }> {
  const rows = await sqlRows(
    db,
    failedRow,
    `WITH last AS (SELECT created_at, id FROM tds.webhook_deliveries WHERE webhook_id = $1 AND id = $4),
     failed AS (
       SELECT one.created_at, one.id FROM unnest($6::text[]) AS event, unnest(ARRAY['failed', 'dead']) AS status, LATERAL (
         SELECT d.created_at, d.id FROM tds.webhook_deliveries d
         WHERE d.webhook_id = $1 AND d.event = event.event AND d.status = status.status AND d.manual_at IS NULL
           AND d.created_at BETWEEN $2 AND least((SELECT created_at FROM last), $3)
           AND ($4::uuid IS NULL OR d.created_at < (SELECT created_at FROM last) OR d.id > (SELECT id FROM last))
         ORDER BY d.created_at DESC, d.id LIMIT ${MAX_EXACT_COUNT}
       ) AS one
     )
     SELECT id, (SELECT count(*) FROM failed) AS n FROM failed ORDER BY created_at DESC, id LIMIT $5`,
    [webhookId, from, to, after, limit, DELIVERED_EVENTS],
  );
  const found = Math.min(MAX_EXACT_COUNT, rows[0]?.n ?? 0);
  return { ids: rows.map(({ id }) => id), remaining: found - rows.length };
}
