import type { Delivery, EndpointState } from '../../pipeline/dispatch/queries.ts';
import type { WebhookRecord } from '../../projections/webhooks/queries.ts';
import { deliveryAnswer } from '../../schemas/api/webhooks.ts';
import type { DeliveryAnswer, WebhookAnswer } from '../../schemas/api/webhooks.ts';
import { iso, isoOrNull } from '../http/times.ts';

/** @param endpoint undefined: the webhook never had a delivery */
export function presentWebhook(webhook: WebhookRecord, endpoint?: EndpointState): WebhookAnswer {
  const { id, name, url, events, status, subscriptions, disabled_reason } = webhook;
  return {
    id,
    name,
    url,
    events,
    status,
    subscriptions,
    created_at: iso(webhook.created_at),
    updated_at: iso(webhook.updated_at),
    disabled_at: isoOrNull(webhook.disabled_at),
    disabled_reason,
    consecutive_dead: endpoint?.consecutive_dead ?? 0,
    last_delivery_at: isoOrNull(endpoint?.last_delivery_at ?? null),
  };
}

export function presentDelivery(delivery: Delivery): DeliveryAnswer {
  const { id, event, status, response_code, response_body, error, duration_ms, manual } = delivery;
  return {
    id,
    event,
    status,
    attempt: delivery.attempts,
    response_code,
    response_body,
    error,
    duration_ms,
    payload: deliveryAnswer.shape.payload.parse(JSON.parse(delivery.body)),
    manual,
    created_at: iso(delivery.created_at),
    last_attempt_at: isoOrNull(delivery.last_attempt_at),
    next_attempt_at: isoOrNull(delivery.next_attempt_at),
  };
}
