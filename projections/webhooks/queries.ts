import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { felt } from '../../schemas/messages/common.ts';
import { webhookStatus } from '../../schemas/messages/commands.ts';
import { DELIVERED_EVENTS, WEBHOOK_EVENTS } from '../../schemas/webhooks/events.ts';

/**
 * Read side of the webhooks. `schema` is the served build's: `served.schema('webhooks')`. What was delivered, and with
 * what success, is working state of the dispatcher, and not of any build. Times are unix milliseconds.
 */

/** What the secrets of a user's webhooks are sealed for (infra/sealing.ts). */
export const secretOf = (userId: number): string => `webhook secret of user ${userId}`;

const orAny = felt.or(z.literal(''));
const subscriptionRow = z.object({
  id: z.number(),
  /** '': any. */
  token: orAny,
  address: orAny,
  /** Decimals; '': none. */
  price_above: z.string(),
  price_below: z.string(),
});
export type Subscription = z.infer<typeof subscriptionRow>;

const webhookRow = z.object({
  id: z.number(),
  user_id: z.number(),
  name: z.string(),
  url: z.string(),
  events: z.array(z.enum(WEBHOOK_EVENTS)),
  status: webhookStatus,
  created_at: z.number(),
  updated_at: z.number(),
  /** Both are null unless it is disabled. */
  disabled_at: z.number().nullable(),
  disabled_reason: z.string().nullable(),
  activation: z.number(),
  /** Sealed (`secretOf`). */
  secret: z.string(),
  /** Sealed; good until `previous_until`. */
  previous_secret: z.string().nullable(),
  previous_until: z.number().nullable(),
  from_block: z.number(),
});
export type WebhookRow = z.infer<typeof webhookRow>;

const webhookWithSubscriptions = webhookRow.extend({ subscriptions: z.array(subscriptionRow) });
/** With its subscriptions, in the order in which they were given. */
export type Webhook = z.infer<typeof webhookWithSubscriptions>;

/** A webhook without its secrets: what a command that made or changed one results in. */
export const webhookRecord = webhookWithSubscriptions.omit({ secret: true, previous_secret: true });
export type WebhookRecord = z.infer<typeof webhookRecord>;

const selectWebhooks = (schema: string): string => `
  SELECT w.*, (
    SELECT coalesce(json_agg(json_build_object('id', s.id, 'token', s.token, 'address', s.address,
      'price_above', s.price_above, 'price_below', s.price_below) ORDER BY s.id), '[]'::json)
    FROM ${schema}.webhook_subscriptions s WHERE s.webhook_id = w.id
  ) AS subscriptions
  FROM ${schema}.webhooks w`;

/** Whoever has it. */
export async function webhookById(db: Sql, schema: string, id: number): Promise<Webhook | null> {
  const [webhook] = await sqlRows(db, webhookWithSubscriptions, `${selectWebhooks(schema)} WHERE w.id = $1`, [
    id,
  ]);
  return webhook ?? null;
}

/** Null, too, where it is another user's. */
export async function webhookOfUser(
  db: Sql,
  schema: string,
  userId: number,
  id: number,
): Promise<Webhook | null> {
  const webhook = await webhookById(db, schema, id);
  return webhook?.user_id === userId ? webhook : null;
}

/** Oldest first. */
export async function webhooksOfUser(db: Sql, schema: string, userId: number): Promise<Webhook[]> {
  return await sqlRows(
    db,
    webhookWithSubscriptions,
    `${selectWebhooks(schema)} WHERE w.user_id = $1 ORDER BY w.id`,
    [userId],
  );
}

const streakRow = z.object({
  webhook_id: z.number(),
  activation: z.number(),
  consecutive_dead: z.number(),
  last_delivery_at: z.number().nullable(),
});

/** How the deliveries of a webhook went. */
export interface Streak {
  /** Deliveries that died in a row since it was last made active. */
  readonly consecutive_dead: number;
  readonly last_delivery_at: number | null;
}

/** By the webhook's id; one that never had a delivery is missing. */
export async function streaksOf(
  db: Sql,
  webhooks: readonly Pick<WebhookRow, 'id' | 'activation'>[],
): Promise<ReadonlyMap<number, Streak>> {
  const rows = await sqlRows(
    db,
    streakRow,
    `SELECT webhook_id, activation, consecutive_dead, last_delivery_at
     FROM tds.webhook_endpoints WHERE webhook_id = ANY($1)`,
    [webhooks.map(({ id }) => id)],
  );
  const activations = new Map(webhooks.map(({ id, activation }) => [id, activation]));
  return new Map(
    rows.map(({ webhook_id: id, activation, ...streak }) => [
      id,
      activations.get(id) === activation ? streak : { ...streak, consecutive_dead: 0 },
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
  /** JSON, as it is sent. */
  body: z.string(),
  /** The last attempt was asked for by hand. */
  manual: z.boolean(),
  created_at: z.number(),
  last_attempt_at: z.number().nullable(),
  next_attempt_at: z.number().nullable(),
});
export type Delivery = z.infer<typeof deliveryRow>;

/**
 * A delivery is due by its schedule or by hand, whichever is earlier (`least` passes over nulls). The schedule of a webhook
 * that is not active rests, but for the first attempt of a test.
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

/** Null is no filter. */
const DELIVERIES_ASKED =
  'webhook_id = $1 AND ($2::text IS NULL OR status = $2) AND ($3::text IS NULL OR event = $3)';
const asked = (webhookId: number, { status, event }: DeliveryFilters): unknown[] => [
  webhookId,
  status ?? null,
  event ?? null,
];

/** Counted one by one; beyond, a count is an estimate. */
export const EXACT_DELIVERIES = 10_000;

const planRow = z.object({
  'QUERY PLAN': z.tuple([z.object({ Plan: z.object({ 'Plan Rows': z.number() }) })]),
});

/** Exact to 10,000; beyond that, what the planner takes it for. */
export async function countDeliveries(
  db: Sql,
  webhookId: number,
  filters: DeliveryFilters,
): Promise<{ readonly count: number; readonly isEstimate: boolean }> {
  const all = `SELECT 1 FROM tds.webhook_deliveries WHERE ${DELIVERIES_ASKED}`;
  const [counted] = await sqlRows(
    db,
    z.object({ n: z.number() }),
    `SELECT count(*) AS n FROM (${all} LIMIT ${EXACT_DELIVERIES + 1}) AS counted`,
    asked(webhookId, filters),
  );
  const n = counted?.n ?? 0;
  if (n <= EXACT_DELIVERIES) return { count: n, isEstimate: false };
  const [plan] = await sqlRows(db, planRow, `EXPLAIN (FORMAT JSON) ${all}`, asked(webhookId, filters));
  return { count: Math.max(n, plan?.['QUERY PLAN'][0].Plan['Plan Rows'] ?? 0), isEstimate: true };
}

/** Newest first; of the last page, too. */
export async function deliveriesOf(
  db: Sql,
  webhook: Pick<WebhookRow, 'id' | 'status'>,
  filters: DeliveryFilters,
  page: { readonly offset: number | 'last'; readonly limit: number },
): Promise<Delivery[]> {
  const isLast = page.offset === 'last';
  const order = isLast ? 'created_at, id DESC' : 'created_at DESC, id';
  const rows = await sqlRows(
    db,
    deliveryRow,
    `${selectDeliveries(webhook)} WHERE ${DELIVERIES_ASKED} ORDER BY ${order} LIMIT $4 OFFSET $5`,
    [...asked(webhook.id, filters), page.limit, isLast ? 0 : page.offset],
  );
  return isLast ? rows.toReversed() : rows;
}

export async function deliveryOf(
  db: Sql,
  webhook: Pick<WebhookRow, 'id' | 'status'>,
  id: string,
): Promise<Delivery | null> {
  const [delivery] = await sqlRows(
    db,
    deliveryRow,
    `${selectDeliveries(webhook)} WHERE webhook_id = $1 AND id = $2`,
    [webhook.id, id],
  );
  return delivery ?? null;
}

/** Whom an event concerns: what the dispatcher asks. Only webhooks that are active are told of anything. */

/** Of a webhook `w`: its owner is not shut out. */
export const ownerIsIn = (schema: string): string =>
  `NOT EXISTS (SELECT 1 FROM ${schema}.shut_out_users u WHERE u.user_id = w.user_id)`;

/** Of a webhook `w`: it is told of what happens. */
const isTold = (schema: string): string => `w.status = 'active' AND ${ownerIsIn(schema)}`;

/**
 * The lowest height of which an active webhook is not told; null where none wants any of these events. Every block above
 * it has to be looked at.
 */
export async function wantedAbove(
  db: Sql,
  schema: string,
  events: readonly (typeof WEBHOOK_EVENTS)[number][],
): Promise<number | null> {
  const [row] = await sqlRows(
    db,
    z.object({ lowest: z.number().nullable() }),
    `SELECT min(from_block) AS lowest FROM ${schema}.webhooks w WHERE ${isTold(schema)} AND events && $1::text[]`,
    [events],
  );
  return row?.lowest ?? null;
}

/** When the oldest webhook was made; null: there is none. */
export async function oldestWebhook(db: Sql, schema: string): Promise<number | null> {
  const [row] = await sqlRows(
    db,
    z.object({ oldest: z.number().nullable() }),
    `SELECT min(created_at) AS oldest FROM ${schema}.webhooks`,
  );
  return row?.oldest ?? null;
}

const subscriberRow = z.object({ webhook_id: z.number(), token: z.string(), address: z.string() });
/** What a subscription of a webhook names: '' is any. */
export type Subscriber = z.infer<typeof subscriberRow>;

/**
 * Whoever may want to hear of something that happened to one of these tokens and one of these accounts, each subject of a
 * webhook once: by index, from the side that narrows it down more.
 */
export async function subscribersTo(
  db: Sql,
  schema: string,
  event: (typeof WEBHOOK_EVENTS)[number],
  height: number,
  { tokens, accounts }: { readonly tokens: readonly string[]; readonly accounts: readonly string[] },
): Promise<Subscriber[]> {
  const named = `SELECT webhook_id, token, address FROM ${schema}.webhook_subscriptions`;
  return await sqlRows(
    db,
    subscriberRow,
    // Once, and not again for each webhook, which the planner takes for better while it knows nothing of the tables.
    `WITH named AS MATERIALIZED (
       ${named} WHERE address <> '' AND address = ANY ($1) AND token = ANY ($2)
       UNION ALL ${named} WHERE address = '' AND token = ANY ($2)
     )
     SELECT DISTINCT s.webhook_id, s.token, s.address FROM named s JOIN ${schema}.webhooks w ON w.id = s.webhook_id
     WHERE ${isTold(schema)} AND $3 = ANY (w.events) AND w.from_block < $4`,
    [accounts, [...tokens, ''], event, height],
  );
}

const idRow = z.object({ id: z.number() });

/** The webhooks that are told of a new token: of any, unless all of their subscriptions name others. */
export async function launchSubscribers(
  db: Sql,
  schema: string,
  { token, height }: { readonly token: string; readonly height: number },
): Promise<number[]> {
  const rows = await sqlRows(
    db,
    idRow,
    `SELECT id FROM ${schema}.webhooks w
     WHERE ${isTold(schema)} AND 'token.launched' = ANY (events) AND from_block < $2 AND (
       NOT EXISTS (SELECT 1 FROM ${schema}.webhook_subscriptions WHERE webhook_id = w.id)
       OR EXISTS (SELECT 1 FROM ${schema}.webhook_subscriptions WHERE webhook_id = w.id AND token IN ('', $1)))`,
    [token, height],
  );
  return rows.map(({ id }) => id);
}

/** Which of these webhooks are active and want to hear of transfers that were reverted. */
export async function hearOfReverts(db: Sql, schema: string, ids: readonly number[]): Promise<Set<number>> {
  const rows = await sqlRows(
    db,
    idRow,
    `SELECT id FROM ${schema}.webhooks w
     WHERE id = ANY ($1) AND ${isTold(schema)} AND 'transfer.reverted' = ANY (events)`,
    [ids],
  );
  return new Set(rows.map(({ id }) => id));
}

const crossingRow = z.object({
  webhook_id: z.number(),
  price_above: z.string(),
  price_below: z.string(),
  crossed_above: z.boolean(),
  crossed_below: z.boolean(),
});
export type Crossing = z.infer<typeof crossingRow>;

/**
 * The thresholds that a price crosses on its way from one value to the next (decision 88), once for each webhook and pair
 * of thresholds. Prices are decimal strings.
 *
 * @param at when the new price was said; a webhook that was made later hears nothing of it
 */
export async function crossedThresholds(
  db: Sql,
  schema: string,
  {
    token,
    from,
    to,
    at,
  }: { readonly token: string; readonly from: string; readonly to: string; readonly at: number },
): Promise<Crossing[]> {
  const above = "nullif(s.price_above, '')::numeric";
  const below = "nullif(s.price_below, '')::numeric";
  return await sqlRows(
    db,
    crossingRow,
    `SELECT * FROM (
       SELECT DISTINCT s.webhook_id, s.price_above, s.price_below,
         coalesce($2::numeric < ${above} AND ${above} <= $3::numeric, false) AS crossed_above,
         coalesce($2::numeric > ${below} AND ${below} >= $3::numeric, false) AS crossed_below
       FROM ${schema}.webhook_subscriptions s JOIN ${schema}.webhooks w ON w.id = s.webhook_id
       WHERE s.token = $1 AND (s.price_above <> '' OR s.price_below <> '')
         AND ${isTold(schema)} AND 'price.threshold' = ANY (w.events) AND w.created_at <= $4
     ) AS crossings WHERE crossed_above OR crossed_below`,
    [token, from, to, at],
  );
}

const requestRow = z.object({
  command_offset: z.number(),
  kind: z.enum(['test', 'retry', 'delete']),
  webhook_id: z.number(),
  delivery_id: z.string().nullable(),
  issued_at: z.number(),
});
export type WebhookRequest = z.infer<typeof requestRow>;

/** What the dispatcher is to do, from a command on, in their order. */
export async function webhookRequests(
  db: Sql,
  schema: string,
  from: number,
  limit: number,
): Promise<WebhookRequest[]> {
  return await sqlRows(
    db,
    requestRow,
    `SELECT command_offset, kind, webhook_id, delivery_id, issued_at FROM ${schema}.webhook_requests
     WHERE command_offset >= $1 ORDER BY command_offset LIMIT $2`,
    [from, limit],
  );
}

const deadRow = z.object({ id: z.number(), activation: z.number(), consecutive_dead: z.number() });

/** Active webhooks of which so many deliveries died in a row. */
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

const activatedRow = z.object({ id: z.number(), activation: z.number() });

/** Active webhooks that were made active since their endpoint was last looked at. */
export async function newlyActive(db: Sql, schema: string): Promise<z.infer<typeof activatedRow>[]> {
  return await sqlRows(
    db,
    activatedRow,
    `SELECT w.id, w.activation FROM tds.webhook_endpoints e JOIN ${schema}.webhooks w ON w.id = e.webhook_id
     WHERE w.status = 'active' AND e.activation < w.activation`,
  );
}

/** Webhooks of which something rests since their owners were shut out, who no longer are. */
export async function newlyLetIn(db: Sql, schema: string): Promise<number[]> {
  const rows = await sqlRows(
    db,
    idRow,
    `SELECT w.id FROM tds.webhook_endpoints e JOIN ${schema}.webhooks w ON w.id = e.webhook_id
     WHERE e.shut_out AND ${ownerIsIn(schema)}`,
  );
  return rows.map(({ id }) => id);
}
