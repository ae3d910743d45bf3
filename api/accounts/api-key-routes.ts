import { z } from 'zod';

import { parseNetwork } from '../../infra/networks.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { keysOfUser } from '../../projections/accounts/queries.ts';
import { lastUses } from '../../projections/key-use/queries.ts';
import { usedHours } from '../../projections/usage/queries.ts';
import { createdKeyAnswer, doneAnswer, keyUsageAnswer, listedKeyAnswer } from '../../schemas/api/accounts.ts';
import { apiKeyPrefix, derivedApiKey, hashSecret, randomApiKey } from '../auth/api-key.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import type { CommandsFor } from '../commands/command-queue.ts';
import { invalidInput, notFound } from '../http/errors.ts';
import { integerField, textField } from '../http/fields.ts';
import { acceptedResult, identifyCommand } from '../commands/idempotency.ts';
import { bucketStart } from '../http/intervals.ts';
import { integer, timestamp } from '../http/params.ts';
import { parseOriginRule } from '../auth/restrictions.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { iso, isoOrNull } from '../http/times.ts';

export interface ApiKeyRouteDeps {
  readonly pool: Sql;
  /** Read-only. */
  readonly clickhouseFor: ClickHouseFor;
  readonly commandsFor: CommandsFor;
  readonly secretKey: Buffer;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const LIST_LENGTH = 100;
const DAY_MS = 86_400_000;

const origin = textField({ max: 255 }).refine(
  (value) => parseOriginRule(value) !== null,
  'Enter an origin: https://example.org, example.org or *.example.org.',
);
const network = textField({ max: 64 }).refine(
  (value) => parseNetwork(value) !== null,
  'Enter an IP address or a network in CIDR notation.',
);

/** A key in the outcome of its creation. */
const createdKey = z.object({
  id: z.int(),
  name: z.string(),
  prefix: z.string(),
  allowed_origins: z.array(z.string()),
  allowed_ips: z.array(z.string()),
  rate_limit_per_hour: z.int().nullable(),
  created_at: z.int(),
  expires_at: z.int().nullable(),
});

export function apiKeyRoutes(deps: ApiKeyRouteDeps): Route[] {
  return [createKeyRoute(deps), listKeysRoute(deps), deleteKeyRoute(deps), keyUsageRoute(deps)];
}

function createKeyRoute({ commandsFor, secretKey, now }: ApiKeyRouteDeps): Route {
  return defineRoute({
    id: 'createApiKey',
    method: 'POST',
    path: '/api/users/auth/create-api-key/',
    summary: 'Create an API key',
    description: 'With an `Idempotency-Key` header, a retry within 48 hours returns the same key.',
    tag: 'Account and keys',
    auth: 'session',
    isIdempotent: true,
    body: z.object({
      name: textField({ max: 100 }),
      allowed_origins: z.array(origin).max(LIST_LENGTH).nullish(),
      allowed_ips: z.array(network).max(LIST_LENGTH).nullish(),
      rate_limit_per_hour: integerField({ min: 1, max: 2_147_483_647 }).nullish(),
      expires_at: timestamp('From this time on the key is rejected').nullish(),
      domain: z
        .union([z.literal(''), origin])
        .nullish()
        .meta({
          description: 'Older form of `allowed_origins` with one entry',
          deprecated: true,
        }),
    }),
    response: { 201: createdKeyAnswer },
    location: '/api/users/auth/api-keys/',
    async handler({ input: { body }, user, request }) {
      const actor = `user:${user.id}`;
      const expiresAt = body.expires_at?.getTime();
      if (expiresAt !== undefined && expiresAt <= now()) {
        throw invalidInput({ expires_at: ['Must be in the future.'] });
      }
      const command = identifyCommand(secretKey, actor, request, body);
      const key = command.id === undefined ? randomApiKey() : derivedApiKey(secretKey, command.id);
      const outcome = await commandsFor(request).submit({
        type: 'api-key.create',
        actor,
        ...command,
        body: {
          user_id: user.id,
          name: body.name,
          key_hash: hashSecret(key),
          prefix: apiKeyPrefix(key),
          allowed_origins: [
            ...new Set([...(body.allowed_origins ?? []), ...(body.domain ? [body.domain] : [])]),
          ],
          allowed_ips: [...new Set(body.allowed_ips ?? [])],
          rate_limit_per_hour: body.rate_limit_per_hour ?? null,
          ...(expiresAt === undefined ? {} : { expires_at: expiresAt }),
        },
      });
      const { created_at, expires_at, ...rest } = createdKey.parse(acceptedResult(command, outcome));
      const times = { created_at: iso(created_at), last_used_at: null, expires_at: isoOrNull(expires_at) };
      return { status: 201, body: { ...rest, key, ...times } };
    },
  });
}

function listKeysRoute({ pool }: ApiKeyRouteDeps): Route {
  return defineRoute({
    id: 'listApiKeys',
    method: 'GET',
    path: '/api/users/auth/api-keys/',
    summary: "List the caller's API keys",
    description: 'The keys themselves are never shown again.',
    tag: 'Account and keys',
    auth: 'session',
    response: { 200: z.array(listedKeyAnswer) },
    async handler({ user, served }) {
      const keys = await keysOfUser(pool, served.schema('accounts'), user.id);
      const used = await lastUses(
        pool,
        served.schema('key-use'),
        keys.map(({ id }) => id),
      );
      const body = keys.map(({ id, name, created_at }) => ({
        id,
        name,
        created_at: iso(created_at),
        last_used_at: isoOrNull(used.get(id) ?? null),
      }));
      return { status: 200, body };
    },
  });
}

function deleteKeyRoute({ commandsFor, secretKey }: ApiKeyRouteDeps): Route {
  return defineRoute({
    id: 'deleteApiKey',
    method: 'POST',
    path: '/api/users/auth/api-keys/delete/',
    summary: 'Delete an API key',
    description: 'From then on, requests with the key return 401.',
    tag: 'Account and keys',
    auth: 'session',
    isIdempotent: true,
    body: z.object({ key_id: integerField() }),
    response: { 200: doneAnswer },
    async handler({ input: { body }, user, request }) {
      const actor = `user:${user.id}`;
      const command = identifyCommand(secretKey, actor, request, body);
      const outcome = await commandsFor(request).submit({
        type: 'api-key.delete',
        actor,
        ...command,
        body: { user_id: user.id, key_id: body.key_id },
      });
      acceptedResult(command, outcome);
      return { status: 200, body: { success: true as const, detail: 'API key deleted.' } };
    },
  });
}

function keyUsageRoute({ pool, clickhouseFor, now }: ApiKeyRouteDeps): Route {
  return defineRoute({
    id: 'getApiKeyUsage',
    method: 'GET',
    path: '/api/users/auth/api-keys/{id}/usage/',
    summary: 'Count the calls of an API key per hour',
    description:
      'Returns hours in UTC, oldest first; hours without a call are left out. Updated every few seconds.',
    tag: 'Account and keys',
    auth: 'session',
    params: z.object({ id: integer({ min: 0 }) }),
    query: z.object({
      start_time: timestamp('ISO 8601, UTC by default; 24 hours before the end when absent').optional(),
      end_time: timestamp('ISO 8601, UTC by default; now when absent').optional(),
    }),
    response: { 200: keyUsageAnswer },
    async handler({ input: { params, query }, user, served, request }) {
      const { end_time: end = new Date(now()) } = query;
      const { start_time: start = new Date(end.getTime() - DAY_MS) } = query;
      if (start > end) throw invalidInput({ start_time: ['Must not be later than end_time.'] });
      const keys = await keysOfUser(pool, served.schema('accounts'), user.id);
      if (keys.every(({ id }) => id !== params.id)) throw notFound();
      const hours = await usedHours(clickhouseFor(request), served, {
        keyId: params.id,
        from: bucketStart('1 hour', start.getTime()),
        to: end.getTime(),
      });
      return {
        status: 200,
        body: {
          success: true as const,
          id: params.id,
          start_time: start.toISOString(),
          end_time: end.toISOString(),
          total_calls: hours.reduce((sum, { calls }) => sum + calls, 0),
          data: hours.map(({ hour, calls, successful }) => ({
            hour: iso(hour),
            calls,
            successful_calls: successful,
          })),
        },
      };
    },
  });
}
