import { randomUUID } from 'node:crypto';

import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import {
  DELIVERY_STATUSES,
  MAX_COUNTED,
  countDeliveries,
  deliveryPeriods,
  failedDeliveries,
  findDelivery,
  listDeliveries,
} from '../../pipeline/dispatch/queries.ts';
import type { Period } from '../../pipeline/dispatch/queries.ts';
import { webhookOfUser } from '../../projections/webhooks/queries.ts';
import type { Webhook } from '../../projections/webhooks/queries.ts';
import {
  deliveryAnswer,
  deliveryListAnswer,
  retriedDeliveriesAnswer,
  testedWebhookAnswer,
  webhookStatsAnswer,
} from '../../schemas/api/webhooks.ts';
import { DELIVERED_EVENTS } from '../../schemas/webhooks/events.ts';
import { submitForCaller } from '../commands/submit-for-caller.ts';
import type { SubmitDeps } from '../commands/submit-for-caller.ts';
import { REACHABLE_ROWS, countWithPage, envelope, resolvePage } from '../http/envelope.ts';
import { HttpError, invalidInput, orNotFound } from '../http/errors.ts';
import { hoursOrDays, limit, page, timestamp } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import { figure } from '../http/stated-limits.ts';
import type { CallerUser, Route } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { HOUR_MS, iso } from '../http/times.ts';
import { webhookParams } from './fields.ts';
import { presentDelivery } from './present.ts';

export interface DeliveryRouteDeps extends SubmitDeps {
  /** Unix milliseconds. */
  readonly now: () => number;
}

const common = { tag: 'Webhooks', auth: 'session' } as const;

/** Routes of a webhook's deliveries. */
export function deliveryRoutes(deps: DeliveryRouteDeps): Route[] {
  return [testRoute(deps), listRoute(), statsRoute(deps), retryRoute(deps), retryFailedRoute(deps)];
}

function testRoute(deps: DeliveryRouteDeps): Route {
  const submit = submitForCaller(deps);
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

function listRoute(): Route {
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
    async handler({ input: { params, query }, user, served, request, pool }) {
      const webhook = await ownWebhook(pool, served, user, params.id);
      const counted = await countDeliveries(pool, params.id, query);
      const isLast = query.page === 'last';
      // An estimate may be too low or too high: a page exists if it has deliveries.
      const reachable = counted.isEstimate && !isLast ? REACHABLE_ROWS : counted.count;
      const asked = resolvePage(query.page, query.limit, reachable);
      const rows = await listDeliveries(pool, webhook, query, {
        offset: counted.isEstimate && isLast ? 'last' : asked.offset,
        limit: isLast ? query.limit : query.limit + 1,
      });
      const { count, isEstimate } = isLast
        ? counted
        : countWithPage(counted, asked.number, query.limit, rows.length);
      const found = resolvePage(query.page, query.limit, count);
      const results = rows.slice(0, query.limit).map(presentDelivery);
      const options = { query: request.query, count, countIsEstimate: isEstimate };
      return { status: 200, body: envelope(results, found, options) };
    },
  });
}

const STEPS = { '1 hour': HOUR_MS, '1 day': 24 * HOUR_MS } as const;
const DEFAULT_STEPS = 24;

function statsRoute({ now }: DeliveryRouteDeps): Route {
  return defineRoute({
    id: 'getWebhookStats',
    ...common,
    method: 'GET',
    path: '/api/webhooks/{id}/stats/',
    summary: 'Count the deliveries of a webhook by hour or day',
    description: [
      'Counts deliveries, tests included, by the time at which they were created, in UTC, oldest first; hours and days without one',
      `are left out. Only the newest ${MAX_COUNTED.toLocaleString('en')} deliveries between the two times are counted.`,
    ].join(' '),
    params: webhookParams,
    query: hoursOrDays(DEFAULT_STEPS),
    limits: [`Deliveries that are counted: the newest ${figure(MAX_COUNTED)}`],
    response: { 200: webhookStatsAnswer },
    async handler({ input: { params, query }, user, served, pool }) {
      const { id } = await ownWebhook(pool, served, user, params.id);
      const step = STEPS[query.interval];
      const to = query.end_time?.getTime() ?? now();
      const from = query.start_time?.getTime() ?? to - DEFAULT_STEPS * step;
      const periods = await deliveryPeriods(pool, id, orderly({ from, to }), step);
      const results = periods.map(({ start, median, p95, ...counts }) => ({
        time: iso(start),
        ...counts,
        median_ms: median,
        p95_ms: p95,
      }));
      return { status: 200, body: { results } };
    },
  });
}

function orderly(period: Period): Period {
  if (period.from > period.to) throw invalidInput({ start_time: ['Must not be later than end_time.'] });
  return period;
}

function retryRoute(deps: DeliveryRouteDeps): Route {
  const submit = submitForCaller(deps);
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
    async handler({ input: { params }, user, served, request, pool }) {
      const { id: webhookId, delivery_id: deliveryId } = params;
      const webhook = await ownWebhook(pool, served, user, webhookId);
      const { status } = orNotFound(await findDelivery(pool, webhook, deliveryId));
      if (status === 'success') throw new HttpError(409, 'conflict', 'The delivery has succeeded already.');
      const body = { user_id: user.id, webhook_id: webhookId, delivery_id: deliveryId };
      await submit(user, { type: 'delivery.retry', body }, { request });
      const retried = orNotFound(await findDelivery(pool, webhook, deliveryId));
      return { status: 202, body: presentDelivery(retried) };
    },
  });
}

/** Deliveries of one request: about a second of decisions. */
const MAX_RETRIED = 100;
/** Delivery id in the command of a request that found no delivery; its outcome stores the answer. */
const NO_DELIVERY = '00000000-0000-0000-0000-000000000000';

function retryFailedRoute(deps: DeliveryRouteDeps): Route {
  const submit = submitForCaller(deps);
  return defineRoute({
    id: 'retryDeliveries',
    ...common,
    method: 'POST',
    path: '/api/webhooks/{id}/deliveries/retry/',
    summary: 'Retry the failed deliveries of a period',
    description: [
      `Adds an attempt to the newest ${MAX_RETRIED} failed or dead deliveries created in the period, even if the webhook is not active.`,
      'Deliveries that already wait for a requested attempt are left out. For the `remaining` ones, repeat the request with `after`',
      'and another `Idempotency-Key`. The response is sent before the attempts are made.',
    ].join(' '),
    isIdempotent: true,
    params: webhookParams,
    body: z.object({
      start_time: timestamp('ISO 8601, inclusive, UTC by default'),
      end_time: timestamp('ISO 8601, inclusive, UTC by default'),
      after: z.uuid().optional().meta({
        description: 'The last of the `retried` of the previous response; a deleted one returns 400',
      }),
    }),
    limits: [`Deliveries of a call: ${MAX_RETRIED}`],
    response: { 202: retriedDeliveriesAnswer },
    async handler({ input, user, served, request, pool }) {
      const { params, body } = input;
      const webhook = await ownWebhook(pool, served, user, params.id);
      const period = orderly({ from: body.start_time.getTime(), to: body.end_time.getTime() });
      const range = { after: body.after ?? null, limit: MAX_RETRIED };
      const { ids, remaining } = await failedDeliveries(pool, webhook.id, period, range);
      const found = { retried: [...ids], remaining };
      const check = async (): Promise<void> => {
        const { after } = body;
        if (after !== undefined && (await findDelivery(pool, webhook, after)) === null)
          throw invalidInput({
            after: [
              'The webhook has no delivery of this id, or it was deleted. Repeat the request without `after`: ' +
                'deliveries that already wait for a requested attempt are left out.',
            ],
          });
      };
      const type = 'delivery.retry';
      const ofWebhook = { user_id: user.id, webhook_id: webhook.id };
      if (ids.length === 0 && request.header('Idempotency-Key') === '') {
        await check();
        return { status: 202, body: found };
      }
      // The outcome of this command stores the answer, which a repeat with the same Idempotency-Key gets.
      const first = { ...ofWebhook, delivery_id: ids[0] ?? NO_DELIVERY, answer: found };
      const result = await submit(user, { type, body: first }, { request, input, check });
      // A process of an earlier release decides without the answer.
      const answer = retriedDeliveriesAnswer.parse({ ...found, ...result });
      await Promise.all(
        answer.retried
          .filter((id) => id !== result['delivery_id'])
          .map(async (id) => {
            const asked = { ...ofWebhook, delivery_id: id };
            await submit(user, { type, body: asked }, { request, input: asked, part: id });
          }),
      );
      return { status: 202, body: answer };
    },
  });
}

async function ownWebhook(pool: Sql, served: ServedBuilds, user: CallerUser, id: number): Promise<Webhook> {
  return orNotFound(await webhookOfUser(pool, served.schema('webhooks'), user.id, id));
}
