import { z } from 'zod';

import { parseNetwork } from '../../infra/networks.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { keyOfUser, keyRecord, keysOfUser } from '../../projections/accounts/queries.ts';
import type { KeyRecord } from '../../projections/accounts/queries.ts';
import { lastUses } from '../../projections/key-use/queries.ts';
import { usedHours } from '../../projections/usage/queries.ts';
import {
  createdKeyAnswer,
  doneAnswer,
  keyAnswer,
  keyUsageAnswer,
  listedKeyAnswer,
} from '../../schemas/api/accounts.ts';
import type { KeyAnswer } from '../../schemas/api/accounts.ts';
import { apiKeyPrefix, createdApiKey, derivedApiKey, hashSecret, randomApiKey } from '../auth/api-key.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { invalidInput, orNotFound } from '../http/errors.ts';
import { integerField, textField } from '../http/fields.ts';
import { acceptedResult, checkUnlessRetry, identifyCommand } from '../commands/idempotency.ts';
import { submitForCaller } from '../commands/submit-for-caller.ts';
import type { SubmitDeps } from '../commands/submit-for-caller.ts';
import { bucketStart } from '../http/intervals.ts';
import { integer, timestamp } from '../http/params.ts';
import { parseOriginRule } from '../auth/restrictions.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { iso, isoOrNull } from '../http/times.ts';

export interface ApiKeyRouteDeps extends SubmitDeps {
  /** Read-only. */
  readonly clickhouseFor: ClickHouseFor;
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

const name = textField({ max: 100 });
const origins = z.array(origin).max(LIST_LENGTH);
const networks = z.array(network).max(LIST_LENGTH);
const ratePerHour = integerField({ min: 1, max: 2_147_483_647 });
const expiry = timestamp('From this time on the key is rejected');

const keyPath = '/api/users/auth/api-keys/{id}/';
const keyParams = z.object({ id: integer({ min: 0 }) });

const common = { tag: 'Account and keys', auth: 'session' } as const;

export function apiKeyRoutes(deps: ApiKeyRouteDeps): Route[] {
  return [
    createKeyRoute(deps),
    listKeysRoute(),
    deleteKeyRoute(deps),
    readKeyRoute(),
    changeKeyRoute(deps),
    keyUsageRoute(deps),
  ];
}

function createKeyRoute({ commandsFor, secretKey, now }: ApiKeyRouteDeps): Route {
  return defineRoute({
    id: 'createApiKey',
    ...common,
    method: 'POST',
    path: '/api/users/auth/create-api-key/',
    summary: 'Create an API key',
    description:
      'With an `Idempotency-Key` header, a retry within 48 hours returns the same key; a later one creates another key.',
    isIdempotent: true,
    body: z.object({
      name,
      allowed_origins: origins.nullish(),
      allowed_ips: networks.nullish(),
      rate_limit_per_hour: ratePerHour.nullish(),
      expires_at: expiry.nullish(),
      domain: z
        .union([z.literal(''), origin])
        .nullish()
        .meta({
          description: 'Older form of `allowed_origins` with one entry',
          deprecated: true,
        }),
    }),
    limits: [`Entries of \`allowed_origins\` and of \`allowed_ips\`: ${LIST_LENGTH}`],
    response: { 201: createdKeyAnswer },
    location: keyPath,
    async handler({ input: { body }, user, request }) {
      const actor = `user:${user.id}`;
      const command = identifyCommand(secretKey, actor, request, body);
      const commands = commandsFor(request);
      await checkUnlessRetry(commands, 'api-key.create', command, () => assertFuture(body.expires_at, now));
      const issuedAt = now();
      const key = command.id === undefined ? randomApiKey() : derivedApiKey(secretKey, command.id, issuedAt);
      const outcome = await commands.submit({
        type: 'api-key.create',
        actor,
        issuedAt,
        ...command,
        body: {
          user_id: user.id,
          name: body.name,
          key_hash: hashSecret(key),
          prefix: apiKeyPrefix(key),
          allowed_origins: distinct([...(body.allowed_origins ?? []), ...(body.domain ? [body.domain] : [])]),
          allowed_ips: distinct(body.allowed_ips ?? []),
          rate_limit_per_hour: body.rate_limit_per_hour ?? null,
          ...(body.expires_at == null ? {} : { expires_at: body.expires_at.getTime() }),
        },
      });
      const made = keyRecord.parse(acceptedResult(command, outcome));
      // The outcome may be that of an earlier request.
      const shown = command.id === undefined ? key : createdApiKey(secretKey, command.id, made);
      return { status: 201, body: { ...presentKey(made, null), key: shown, last_used_at: null } };
    },
  });
}

const distinct = (texts: readonly string[]): string[] => [...new Set(texts)];

function assertFuture(time: Date | null | undefined, now: () => number): void {
  if (time != null && time.getTime() <= now()) throw invalidInput({ expires_at: ['Must be in the future.'] });
}

/** @param lastUse Unix milliseconds; null: never */
function presentKey(key: KeyRecord, lastUse: number | null): KeyAnswer {
  const { created_at: createdAt, expires_at: expiresAt } = key;
  const times = { created_at: iso(createdAt), last_used_at: isoOrNull(lastUse) };
  return { ...key, ...times, expires_at: isoOrNull(expiresAt) };
}

function listKeysRoute(): Route {
  return defineRoute({
    id: 'listApiKeys',
    ...common,
    method: 'GET',
    path: '/api/users/auth/api-keys/',
    summary: "List the caller's API keys",
    description: 'The keys themselves are never shown again.',
    response: { 200: z.array(listedKeyAnswer) },
    async handler({ user, served, pool }) {
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

function readKeyRoute(): Route {
  return defineRoute({
    id: 'getApiKey',
    ...common,
    method: 'GET',
    path: keyPath,
    summary: 'Get an API key with its restrictions',
    description: "One of the caller's, without the key itself; 404 for any other.",
    params: keyParams,
    response: { 200: keyAnswer },
    async handler({ input: { params }, user, served, pool }) {
      const key = orNotFound(await keyOfUser(pool, served.schema('accounts'), user.id, params.id));
      return { status: 200, body: presentKey(key, await lastUse(pool, served, key.id)) };
    },
  });
}

function changeKeyRoute({ now, ...deps }: ApiKeyRouteDeps): Route {
  const submit = submitForCaller(deps);
  return defineRoute({
    id: 'updateApiKey',
    ...common,
    method: 'PATCH',
    path: keyPath,
    summary: 'Change the name and restrictions of an API key',
    description:
      'Fields that are left out keep their value. Calls are checked by the new values from then on; open streams of a key whose origins or networks change end within 15 seconds.',
    isIdempotent: true,
    params: keyParams,
    body: z.object({
      name: name.exactOptional(),
      allowed_origins: origins.exactOptional(),
      allowed_ips: networks.exactOptional(),
      rate_limit_per_hour: ratePerHour.nullable().exactOptional(),
      expires_at: expiry.nullable().exactOptional(),
    }),
    limits: [`Entries of \`allowed_origins\` and of \`allowed_ips\`: ${LIST_LENGTH}`],
    response: { 200: keyAnswer },
    async handler({ input, user, served, request, pool }) {
      const { params, body } = input;
      const { allowed_origins, allowed_ips, expires_at, ...rest } = body;
      const changes = {
        user_id: user.id,
        key_id: params.id,
        ...rest,
        ...(allowed_origins === undefined ? {} : { allowed_origins: distinct(allowed_origins) }),
        ...(allowed_ips === undefined ? {} : { allowed_ips: distinct(allowed_ips) }),
        ...(expires_at === undefined ? {} : { expires_at: expires_at?.getTime() ?? null }),
      };
      const check = (): void => assertFuture(expires_at, now);
      const result = await submit(user, { type: 'api-key.update', body: changes }, { request, input, check });
      const key = keyRecord.parse(result);
      return { status: 200, body: presentKey(key, await lastUse(pool, served, key.id)) };
    },
  });
}

/** Unix milliseconds; null: never. */
async function lastUse(pool: Sql, served: ServedBuilds, id: number): Promise<number | null> {
  return (await lastUses(pool, served.schema('key-use'), [id])).get(id) ?? null;
}

function deleteKeyRoute(deps: ApiKeyRouteDeps): Route {
  const submit = submitForCaller(deps);
  return defineRoute({
    id: 'deleteApiKey',
    ...common,
    method: 'POST',
    path: '/api/users/auth/api-keys/delete/',
    summary: 'Delete an API key',
    description: 'From then on, requests with the key return 401.',
    isIdempotent: true,
    body: z.object({ key_id: integerField() }),
    response: { 200: doneAnswer },
    async handler({ input: { body }, user, request }) {
      const asked = { user_id: user.id, key_id: body.key_id };
      await submit(user, { type: 'api-key.delete', body: asked }, { request, input: body });
      return { status: 200, body: { success: true as const, detail: 'API key deleted.' } };
    },
  });
}

function keyUsageRoute({ clickhouseFor, now }: ApiKeyRouteDeps): Route {
  return defineRoute({
    id: 'getApiKeyUsage',
    ...common,
    method: 'GET',
    path: `${keyPath}usage/`,
    summary: 'Count the calls of an API key per hour',
    description:
      'Returns hours in UTC, oldest first; hours without a call are left out. Updated every few seconds.',
    params: keyParams,
    query: z.object({
      start_time: timestamp('ISO 8601, UTC by default; 24 hours before the end when absent').optional(),
      end_time: timestamp('ISO 8601, UTC by default; now when absent').optional(),
    }),
    response: { 200: keyUsageAnswer },
    async handler({ input: { params, query }, user, served, request, pool }) {
      const { end_time: end = new Date(now()) } = query;
      const { start_time: start = new Date(end.getTime() - DAY_MS) } = query;
      if (start > end) throw invalidInput({ start_time: ['Must not be later than end_time.'] });
      orNotFound(await keyOfUser(pool, served.schema('accounts'), user.id, params.id));
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
