import { z } from 'zod';

import { webhookStatus } from '../messages/commands.ts';
import { DELIVERED_EVENTS, WEBHOOK_EVENTS, webhookBody } from '../webhooks/events.ts';
import { envelopeOf, isoTimestamp } from './common.ts';
import { canonicalHex } from './values.ts';

const addressOrAny = canonicalHex.or(z.literal('')).meta({ description: 'Empty: any' });
const priceOrNone = z.string().meta({ description: 'US dollars as a decimal; empty: none' });

export const webhookAnswer = z
  .object({
    id: z.int(),
    name: z.string(),
    url: z.string(),
    events: z.array(z.enum(WEBHOOK_EVENTS)),
    status: webhookStatus,
    subscriptions: z.array(
      z
        .object({
          id: z.int(),
          token: addressOrAny,
          address: addressOrAny,
          price_above: priceOrNone,
          price_below: priceOrNone,
        })
        .meta({ id: 'WebhookSubscription' }),
    ),
    created_at: isoTimestamp,
    updated_at: isoTimestamp,
    disabled_at: isoTimestamp.nullable(),
    disabled_reason: z.string().nullable(),
    consecutive_dead: z
      .int()
      .min(0)
      .meta({ description: 'Consecutive dead deliveries since its status was last set to `active`' }),
    last_delivery_at: isoTimestamp.nullable(),
  })
  .meta({ id: 'Webhook' });
export type WebhookAnswer = z.infer<typeof webhookAnswer>;

const secret = z.string().meta({
  description: 'Signs the deliveries; use the whole text, with its prefix. Shown only here',
  example: `whsec_${'A'.repeat(43)}=`,
});

export const createdWebhookAnswer = webhookAnswer.extend({ secret }).meta({ id: 'CreatedWebhook' });

export const rotatedSecretAnswer = z
  .object({
    id: z.int(),
    secret,
    rotated_at: isoTimestamp,
    previous_secret_expires_at: isoTimestamp
      .optional()
      .meta({ description: 'Until then the previous secret also signs; absent without a grace period' }),
  })
  .meta({ id: 'RotatedSecret' });

export const testedWebhookAnswer = z.object({ delivery_id: z.uuid() });

export const deliveryAnswer = z
  .object({
    id: z.uuid(),
    event: z.enum(DELIVERED_EVENTS),
    status: z.enum(['pending', 'success', 'failed', 'dead']),
    attempt: z.int().min(0).meta({ description: 'The number of the last attempt; 0 before the first' }),
    response_code: z.int().nullable(),
    response_body: z
      .string()
      .nullable()
      .meta({ description: 'The first 16 KB of the response; null: no response, or not text' }),
    error: z.string().nullable(),
    duration_ms: z.int().min(0).nullable(),
    payload: z
      .object({ event: z.string(), created_at: isoTimestamp, data: z.looseObject({}) })
      .meta({ description: 'The body as it is sent' }),
    manual: z.boolean().meta({ description: 'Whether the last attempt was requested manually' }),
    created_at: isoTimestamp,
    last_attempt_at: isoTimestamp.nullable(),
    next_attempt_at: isoTimestamp.nullable(),
  })
  .meta({ id: 'WebhookDelivery' });
export type DeliveryAnswer = z.infer<typeof deliveryAnswer>;

export const deliveryListAnswer = envelopeOf(deliveryAnswer);

const count = z.int().min(0);
const duration = count
  .nullable()
  .meta({ description: 'Milliseconds of the last attempts; null: none has ended' });

export const webhookStatsAnswer = z.object({
  results: z.array(
    z
      .object({
        time: isoTimestamp.meta({ description: 'Start of the hour or day' }),
        success: count,
        pending: count,
        failed: count.meta({ description: 'Waiting for their next attempt' }),
        dead: count,
        median_ms: duration,
        p95_ms: duration,
      })
      .meta({ id: 'DeliveryPeriod' }),
  ),
});

export const retriedDeliveriesAnswer = z.object({
  retried: z.array(z.uuid()).meta({ description: 'Their attempts are due now; newest first' }),
  remaining: count.meta({ description: 'Further deliveries of the period to retry, up to 10,000' }),
});

export const eventCatalogueAnswer = z.array(
  z
    .object({ event: z.enum(WEBHOOK_EVENTS), description: z.string(), payload: webhookBody })
    .meta({ id: 'WebhookEvent' }),
);
