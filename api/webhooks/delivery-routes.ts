import { randomUUID } from 'node:crypto';

import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import {
  DELIVERY_STATUSES,
  countDeliveries,
  findDelivery,
  listDeliveries,
} from '../../pipeline/dispatch/queries.ts';
import type { Delivery } from '../../pipeline/dispatch/queries.ts';
import { webhookOfUser } from '../../projections/webhooks/queries.ts';
import type { Webhook } from '../../projections/webhooks/queries.ts';
import { deliveryAnswer, deliveryListAnswer, testedWebhookAnswer } from '../../schemas/api/webhooks.ts';
import { DELIVERED_EVENTS } from '../../schemas/webhooks/events.ts';
import { submitForCaller } from '../commands/submit-for-caller.ts';
import type { CommandsFor } from '../commands/command-queue.ts';
import { REACHABLE_ROWS, envelope, resolvePage } from '../http/envelope.ts';
import { HttpError, invalidPage, notFound } from '../http/errors.ts';
import { limit, page } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { CallerUser, Route } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { webhookParams } from './fields.ts';
import { presentDelivery } from './present.ts';

export interface DeliveryRouteDeps {
  /** May only SELECT. */
  readonly pool: Sql;
  readonly commandsFor: CommandsFor;
  readonly secretKey: Buffer;
}

const common = { tag: 'Webhooks', auth: 'session' } as const;

/** Routes of a webhook's deliveries. */
export function deliveryRoutes(deps: DeliveryRouteDeps): Route[] {
  return [testRoute(deps), listRoute(deps), retryRoute(deps)];
}

function testRoute({ commandsFor, secretKey }: DeliveryRouteDeps): Route {
  const submit = submitForCaller(commandsFor, secretKey);
  return defineRoute({
    id: 'testWebhook',
    ...common,
    method: 'POST',
    path: '/api/webhooks/{id}/test/',
    summary: 'Send a test delivery',
    description:
      'Sends the event `ping`, even if the webhook is not active. A failed test does not count as a dead delivery.',
    isIdempotent: true,
    params: webhookParams,
    response: { 202: testedWebhookAnswer },
    async handler({ input, user, request }) {
      const body = { user_id: user.id, webhook_id: input.params.id, delivery_id: randomUUID() };
      const result = await submit(user, { type: 'webhook.test', body }, { request, input });
      return { status: 202, body: testedWebhookAnswer.parse(result) };
    },
  });
}

function listRoute({ pool }: DeliveryRouteDeps): Route {
  return defineRoute({
    id: 'listDeliveries',
    ...common,
    method: 'GET',
    path: '/api/webhooks/{id}/deliveries/',
    summary: 'List the deliveries of a webhook',
    description:
      'Newest first. `count` is exact up to 10,000; above that it is an estimate, and `count_is_estimate` is true.',
    params: webhookParams,
    query: z.object({
      status: z.enum(DELIVERY_STATUSES).optional(),
      event: z.enum(DELIVERED_EVENTS).optional(),
      page: page(),
      limit: limit(),
    }),
    response: { 200: deliveryListAnswer },
    async handler({ input: { params, query }, user, served, request }) {
      const webhook = await ownWebhook(pool, served, user, params.id);
      const counted = await countDeliveries(pool, params.id, query);
      const { isEstimate } = counted;
      const isByNumber = isEstimate && typeof query.page === 'number';
      // An estimate may be too low or too high: a page exists if it has deliveries.
      const asked = resolvePage(query.page, query.limit, isByNumber ? REACHABLE_ROWS : counted.count);
      const offset = isEstimate && !isByNumber ? 'last' : asked.offset;
      const deliveries = await listDeliveries(pool, webhook, query, { ...asked, offset });
      if (deliveries.length === 0 && asked.number > 1) throw invalidPage();
      const isFull = deliveries.length === query.limit;
      const count = Math.max(
        counted.count,
        isByNumber ? asked.offset + deliveries.length + Number(isFull) : 0,
      );
      const found = resolvePage(query.page, query.limit, count);
      const results = deliveries.map(presentDelivery);
      const options = { query: request.query, count, countIsEstimate: isEstimate };
      return { status: 200, body: envelope(results, found, options) };
    },
  });
}

function retryRoute({ pool, commandsFor, secretKey }: DeliveryRouteDeps): Route {
  const submit = submitForCaller(commandsFor, secretKey);
  return defineRoute({
    id: 'retryDelivery',
    ...common,
    method: 'POST',
    path: '/api/webhooks/{id}/deliveries/{delivery_id}/retry/',
    summary: 'Retry a delivery',
    description: [
      'Adds an attempt to the scheduled retries, even if the webhook is not active. The response is sent before the attempt',
      'is made. Returns 409 if the delivery has succeeded.',
    ].join(' '),
    params: webhookParams.extend({ delivery_id: z.uuid() }),
    response: { 202: deliveryAnswer },
    async handler({ input: { params }, user, served, request }) {
      const { id: webhookId, delivery_id: deliveryId } = params;
      const webhook = await ownWebhook(pool, served, user, webhookId);
      const { status } = await existingDelivery(pool, webhook, deliveryId);
      if (status === 'success') throw new HttpError(409, 'conflict', 'The delivery has succeeded already.');
      const body = { user_id: user.id, webhook_id: webhookId, delivery_id: deliveryId };
      await submit(user, { type: 'delivery.retry', body }, { request });
      return { status: 202, body: presentDelivery(await existingDelivery(pool, webhook, deliveryId)) };
    },
  });
}

async function ownWebhook(pool: Sql, served: ServedBuilds, user: CallerUser, id: number): Promise<Webhook> {
  const webhook = await webhookOfUser(pool, served.schema('webhooks'), user.id, id);
  if (webhook === null) throw notFound();
  return webhook;
}

async function existingDelivery(pool: Sql, webhook: Webhook, id: string): Promise<Delivery> {
  const delivery = await findDelivery(pool, webhook, id);
  if (delivery === null) throw notFound();
  return delivery;
}
