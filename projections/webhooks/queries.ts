import { z } from 'zod';

import { sqlRow, sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { felt } from '../../schemas/messages/common.ts';
import { webhookStatus } from '../../schemas/messages/commands.ts';
import { WEBHOOK_EVENTS } from '../../schemas/webhooks/events.ts';

/**
 * Queries of webhooks and their subscriptions. `schema` is that of the served build: `served.schema('webhooks')`. Deliveries
 * belong to no build: pipeline/dispatch/queries.ts reads them. Times are unix milliseconds.
 */

/** The context under which a user's webhook secrets are sealed (infra/sealing.ts). */
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
  /** Null unless it is disabled. */
  disabled_at: z.number().nullable(),
  disabled_reason: z.string().nullable(),
  activation: z.number(),
  /** Sealed (`secretOf`). */
  secret: z.string(),
  /** Sealed; valid until `previous_until`. */
  previous_secret: z.string().nullable(),
  previous_until: z.number().nullable(),
  from_block: z.number(),
});
export type WebhookRow = z.infer<typeof webhookRow>;

const webhookWithSubscriptions = webhookRow.extend({ subscriptions: z.array(subscriptionRow) });
/** With its subscriptions, in the order of the request. */
export type Webhook = z.infer<typeof webhookWithSubscriptions>;

/** A webhook without its secrets: the result of a command that created or changed it. */
export const webhookRecord = webhookWithSubscriptions.omit({ secret: true, previous_secret: true });
export type WebhookRecord = z.infer<typeof webhookRecord>;

const selectWebhooks = (schema: string): string => `
  SELECT w.*, (
    SELECT coalesce(json_agg(json_build_object('id', s.id, 'token', s.token, 'address', s.address,
      'price_above', s.price_above, 'price_below', s.price_below) ORDER BY s.id), '[]'::json)
    FROM ${schema}.webhook_subscriptions s WHERE s.webhook_id = w.id
  ) AS subscriptions
  FROM ${schema}.webhooks w`;

/** Of any owner. */
export async function webhookById(db: Sql, schema: string, id: number): Promise<Webhook | null> {
  return await sqlRow(db, webhookWithSubscriptions, `${selectWebhooks(schema)} WHERE w.id = $1`, [id]);
}

/** Null also for a webhook of another user. */
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

/** Condition on a webhook `w`. */
export const ownerIsEnabled = (schema: string): string =>
  `NOT EXISTS (SELECT 1 FROM ${schema}.disabled_owners u WHERE u.user_id = w.user_id)`;

/** Condition on a webhook `w`: events are matched with it. */
const isNotified = (schema: string): string => `w.status = 'active' AND ${ownerIsEnabled(schema)}`;

/** The lowest `from_block` of the active webhooks with one of these events: only blocks above it matter. Null: none. */
export async function lowestFromBlock(
  db: Sql,
  schema: string,
  events: readonly (typeof WEBHOOK_EVENTS)[number][],
): Promise<number | null> {
  const [row] = await sqlRows(
    db,
    z.object({ lowest: z.number().nullable() }),
    `SELECT min(from_block) AS lowest FROM ${schema}.webhooks w WHERE ${isNotified(schema)} AND events && $1::text[]`,
    [events],
  );
  return row?.lowest ?? null;
}

const sealingKeyRow = z.object({ key: z.string(), webhooks: z.number() });

/** Active webhooks by the id of the key that their secret is sealed with (infra/sealing.ts). */
export async function notifiedBySealingKey(
  db: Sql,
  schema: string,
): Promise<z.infer<typeof sealingKeyRow>[]> {
  return await sqlRows(
    db,
    sealingKeyRow,
    `SELECT split_part(secret, '.', 2) AS key, count(*) AS webhooks FROM ${schema}.webhooks w
     WHERE ${isNotified(schema)} GROUP BY key ORDER BY key`,
  );
}

/** When the oldest webhook was created; null: there is none. */
export async function oldestWebhookAt(db: Sql, schema: string): Promise<number | null> {
  const [row] = await sqlRows(
    db,
    z.object({ oldest: z.number().nullable() }),
    `SELECT min(created_at) AS oldest FROM ${schema}.webhooks`,
  );
  return row?.oldest ?? null;
}

const subscriberRow = z.object({ webhook_id: z.number(), token: z.string(), address: z.string() });
/** A subscription; '' is any. */
export type Subscriber = z.infer<typeof subscriberRow>;

/** Subscriptions that may match an event of one of these tokens and one of these accounts, read by index. */
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
    // Without statistics the planner would otherwise run the subquery once per webhook.
    `WITH named AS MATERIALIZED (
       ${named} WHERE address <> '' AND address = ANY ($1) AND token = ANY ($2)
       UNION ALL ${named} WHERE address = '' AND token = ANY ($2)
     )
     SELECT DISTINCT s.webhook_id, s.token, s.address FROM named s JOIN ${schema}.webhooks w ON w.id = s.webhook_id
     WHERE ${isNotified(schema)} AND $3 = ANY (w.events) AND w.from_block < $4`,
    [accounts, [...tokens, ''], event, height],
  );
}

const idRow = z.object({ id: z.number() });

/** Webhooks that are notified of a new token: those without subscriptions, and those with one for it or for any token. */
export async function launchSubscribers(
  db: Sql,
  schema: string,
  { token, height }: { readonly token: string; readonly height: number },
): Promise<number[]> {
  const rows = await sqlRows(
    db,
    idRow,
    `SELECT id FROM ${schema}.webhooks w
     WHERE ${isNotified(schema)} AND 'token.launched' = ANY (events) AND from_block < $2 AND (
       NOT EXISTS (SELECT 1 FROM ${schema}.webhook_subscriptions WHERE webhook_id = w.id)
       OR EXISTS (SELECT 1 FROM ${schema}.webhook_subscriptions WHERE webhook_id = w.id AND token IN ('', $1)))`,
    [token, height],
  );
  return rows.map(({ id }) => id);
}

/** Which of these webhooks are notified of `transfer.reverted`. */
export async function revertSubscribers(
  db: Sql,
  schema: string,
  ids: readonly number[],
): Promise<Set<number>> {
  const rows = await sqlRows(
    db,
    idRow,
    `SELECT id FROM ${schema}.webhooks w
     WHERE id = ANY ($1) AND ${isNotified(schema)} AND 'transfer.reverted' = ANY (events)`,
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
 * The thresholds that a price crosses between two values (decision 88), once for each webhook and pair of thresholds. Prices
 * are decimal strings.
 *
 * @param at when the new price was published: webhooks created later are not notified
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
         AND ${isNotified(schema)} AND 'price.threshold' = ANY (w.events) AND w.created_at <= $4
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
/** A request to the dispatcher. */
export type WebhookRequest = z.infer<typeof requestRow>;

/** Requests of users to the dispatcher, from a command on, in the order of the commands. */
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
