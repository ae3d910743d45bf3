import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import type { Sealing } from '../../infra/sealing.ts';
import { chainStatusRow } from '../../projections/chain-status/queries.ts';
import { endpointStates } from '../../pipeline/dispatch/queries.ts';
import {
  secretOf,
  webhookOfUser,
  webhookRecord,
  webhooksOfUser,
} from '../../projections/webhooks/queries.ts';
import type { WebhookRecord } from '../../projections/webhooks/queries.ts';
import {
  createdWebhookAnswer,
  eventCatalogueAnswer,
  rotatedSecretAnswer,
  webhookAnswer,
} from '../../schemas/api/webhooks.ts';
import type { WebhookAnswer } from '../../schemas/api/webhooks.ts';
import { WEBHOOK_EVENTS, eventCatalogue } from '../../schemas/webhooks/events.ts';
import { submitForCaller } from '../commands/submit-for-caller.ts';
import type { SubmitDeps } from '../commands/submit-for-caller.ts';
import { orNotFound } from '../http/errors.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { MAX_SUBSCRIPTIONS } from '../../schemas/messages/commands.ts';
import { figure } from '../http/stated-limits.ts';
import { iso } from '../http/times.ts';
import { changedWebhook, createdWebhook, rotation, webhookParams } from './fields.ts';
import { presentWebhook } from './present.ts';
import { randomWebhookSecret } from './secret.ts';
import { createUrlChecks } from './url-checks.ts';
import type { AssertCallable, CheckUrl } from './url-checks.ts';

export interface WebhookRouteDeps extends SubmitDeps {
  readonly sealing: Sealing;
  readonly checkUrl: CheckUrl;
}

interface CheckingDeps extends WebhookRouteDeps {
  readonly assertCallable: AssertCallable;
}

const MAX_WEBHOOKS = 100;

const createdRecord = webhookRecord.extend({ secret: z.string() });
const rotatedRecord = z.object({
  secret: z.string(),
  rotated_at: z.number(),
  previous_until: z.number().nullable(),
});

const common = { tag: 'Webhooks', auth: 'session' } as const;
const webhookPath = '/api/webhooks/{id}/';

/** Routes of webhooks; those of their deliveries are in `delivery-routes.ts`. */
export function webhookRoutes(deps: WebhookRouteDeps): Route[] {
  const assertCallable = createUrlChecks(deps.checkUrl);
  return [
    listRoute(),
    createRoute({ ...deps, assertCallable }),
    eventsRoute(),
    readRoute(),
    changeRoute({ ...deps, assertCallable }),
    deleteRoute(deps),
    rotateRoute(deps),
  ];
}

function listRoute(): Route {
  return defineRoute({
    id: 'listWebhooks',
    ...common,
    method: 'GET',
    path: '/api/webhooks/',
    summary: "List the caller's webhooks",
    description: 'Oldest first.',
    response: { 200: z.array(webhookAnswer) },
    async handler({ user, served, pool }) {
      const webhooks = await webhooksOfUser(pool, served.schema('webhooks'), user.id);
      const states = await endpointStates(pool, webhooks);
      return { status: 200, body: webhooks.map((one) => presentWebhook(one, states.get(one.id))) };
    },
  });
}

function createRoute(deps: CheckingDeps): Route {
  const { sealing, assertCallable } = deps;
  const submit = submitForCaller(deps);
  return defineRoute({
    id: 'createWebhook',
    ...common,
    method: 'POST',
    path: '/api/webhooks/',
    summary: 'Create a webhook',
    description: [
      'It receives new transfer, balance and price events that match one of its subscriptions. It receives `token.launched` for every',
      'token if it has no subscriptions, otherwise for tokens that match the `token` of one (empty: any). With an `Idempotency-Key`',
      'header, a retry within 48 hours returns the same secret.',
    ].join(' '),
    isIdempotent: true,
    body: createdWebhook,
    limits: [
      `Webhooks of a user: ${MAX_WEBHOOKS}`,
      `Subscriptions of a webhook: ${figure(MAX_SUBSCRIPTIONS)}`,
    ],
    response: { 201: createdWebhookAnswer },
    location: webhookPath,
    async handler({ input: { body }, user, served, request, pool }) {
      const { head_height: head } = await chainStatusRow(pool, served.schema('chain-status'));
      const asked = {
        user_id: user.id,
        ...body,
        secret: sealing.seal(randomWebhookSecret(), secretOf(user.id)),
        from_block: head ?? -1,
        most: MAX_WEBHOOKS,
      };
      const check = async (): Promise<void> => await assertCallable(request, body.url);
      const result = await submit(
        user,
        { type: 'webhook.create', body: asked },
        { request, input: body, check },
      );
      // A repeated request returns the secret of the first.
      const { secret: sealed, ...webhook } = createdRecord.parse(result);
      const secret = sealing.open(sealed, secretOf(user.id));
      return { status: 201, body: { ...presentWebhook(webhook), secret } };
    },
  });
}

function eventsRoute(): Route {
  return defineRoute({
    id: 'listWebhookEvents',
    ...common,
    method: 'GET',
    path: '/api/webhooks/events/',
    summary: 'List the events that a webhook can receive',
    description: 'Returns each event with its description and an example body.',
    response: { 200: eventCatalogueAnswer },
    async handler() {
      const body = WEBHOOK_EVENTS.map((event) => {
        const { description, example } = eventCatalogue[event];
        return { event, description, payload: example };
      });
      return { status: 200, body };
    },
  });
}

function readRoute(): Route {
  return defineRoute({
    id: 'getWebhook',
    ...common,
    method: 'GET',
    path: webhookPath,
    summary: 'Get a webhook',
    description: "One of the caller's, without its secret; 404 for any other.",
    params: webhookParams,
    response: { 200: webhookAnswer },
    async handler({ input: { params }, user, served, pool }) {
      const webhook = orNotFound(await webhookOfUser(pool, served.schema('webhooks'), user.id, params.id));
      return { status: 200, body: await withEndpointState(pool, webhook) };
    },
  });
}

function changeRoute(deps: CheckingDeps): Route {
  const { assertCallable } = deps;
  const submit = submitForCaller(deps);
  return defineRoute({
    id: 'updateWebhook',
    ...common,
    method: 'PATCH',
    path: webhookPath,
    summary: 'Change a webhook',
    description: 'Fields that are left out keep their value.',
    isIdempotent: true,
    params: webhookParams,
    body: changedWebhook,
    limits: [`Subscriptions of a webhook: ${figure(MAX_SUBSCRIPTIONS)}`],
    response: { 200: webhookAnswer },
    async handler({ input, user, served, request, pool }) {
      const { params, body } = input;
      const check = async (): Promise<void> => {
        if (body.url === undefined) return;
        // Checked first: no DNS lookup is made for a webhook of another user.
        orNotFound(await webhookOfUser(pool, served.schema('webhooks'), user.id, params.id));
        await assertCallable(request, body.url);
      };
      const asked = { user_id: user.id, webhook_id: params.id, ...body };
      const result = await submit(user, { type: 'webhook.update', body: asked }, { request, input, check });
      return { status: 200, body: await withEndpointState(pool, webhookRecord.parse(result)) };
    },
  });
}

function deleteRoute(deps: WebhookRouteDeps): Route {
  const submit = submitForCaller(deps);
  return defineRoute({
    id: 'deleteWebhook',
    ...common,
    method: 'DELETE',
    path: webhookPath,
    summary: 'Delete a webhook',
    description: 'Also deletes its deliveries.',
    isIdempotent: true,
    params: webhookParams,
    response: { 204: null },
    async handler({ input, user, request }) {
      const asked = { user_id: user.id, webhook_id: input.params.id };
      await submit(user, { type: 'webhook.delete', body: asked }, { request, input });
      return { status: 204, body: null };
    },
  });
}

function rotateRoute(deps: WebhookRouteDeps): Route {
  const { sealing } = deps;
  const submit = submitForCaller(deps);
  return defineRoute({
    id: 'rotateWebhookSecret',
    ...common,
    method: 'POST',
    path: `${webhookPath}rotate-secret/`,
    summary: 'Rotate the signing secret',
    description: [
      'The previous secret stops working at once, unless `grace_period_seconds` is given: for that time, `webhook-signature` has',
      'a signature by each of the two secrets.',
    ].join(' '),
    isIdempotent: true,
    params: webhookParams,
    body: rotation,
    response: { 200: rotatedSecretAnswer },
    async handler({ input, user, request }) {
      const { params, body } = input;
      const asked = {
        user_id: user.id,
        webhook_id: params.id,
        secret: sealing.seal(randomWebhookSecret(), secretOf(user.id)),
        grace_seconds: body.grace_period_seconds,
      };
      const result = await submit(user, { type: 'webhook.rotate-secret', body: asked }, { request, input });
      const { secret, rotated_at: at, previous_until: until } = rotatedRecord.parse(result);
      return {
        status: 200,
        body: {
          id: params.id,
          secret: sealing.open(secret, secretOf(user.id)),
          rotated_at: iso(at),
          ...(until === null ? {} : { previous_secret_expires_at: iso(until) }),
        },
      };
    },
  });
}

async function withEndpointState(pool: Sql, webhook: WebhookRecord): Promise<WebhookAnswer> {
  const states = await endpointStates(pool, [webhook]);
  return presentWebhook(webhook, states.get(webhook.id));
}
