import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import { keysOfUser } from '../../projections/accounts/queries.ts';
import { createdKeyAnswer, doneAnswer, listedKeyAnswer } from '../../schemas/api/accounts.ts';
import { apiKeyPrefix, derivedApiKey, hashSecret, randomApiKey } from '../api-key.ts';
import { parseNetwork } from '../client-address.ts';
import type { CommandBus } from '../commands.ts';
import { integerField, textField } from '../fields.ts';
import { acceptedResult, identifyCommand } from '../idempotency.ts';
import { parseOriginRule } from '../restrictions.ts';
import { defineRoute } from '../route.ts';
import type { Route } from '../route.ts';

export interface ApiKeyRouteDeps {
  readonly pool: Sql;
  readonly commands: CommandBus;
  readonly secretKey: Buffer;
}

const LIST_LENGTH = 100;

const origin = textField({ max: 255 }).refine(
  (value) => parseOriginRule(value) !== null,
  'Enter an origin: https://example.org, example.org or *.example.org.',
);
const network = textField({ max: 64 }).refine(
  (value) => parseNetwork(value) !== null,
  'Enter an IP address or a network in CIDR notation.',
);

/** How a key is made, as the projector keeps it. */
const keptKey = z.object({
  id: z.int(),
  name: z.string(),
  prefix: z.string(),
  allowed_origins: z.array(z.string()),
  allowed_ips: z.array(z.string()),
  rate_limit_per_hour: z.int().nullable(),
  created_at: z.int(),
});

const iso = (millis: number): string => new Date(millis).toISOString();

export function apiKeyRoutes({ pool, commands, secretKey }: ApiKeyRouteDeps): Route[] {
  const create = defineRoute({
    method: 'POST',
    path: '/api/users/auth/create-api-key/',
    summary: 'Make an API key',
    description:
      'With an `Idempotency-Key` header a retry shows the same key again, for 48 hours; another body under the same header is answered 422.',
    tag: 'Account and keys',
    auth: 'session',
    isIdempotent: true,
    body: z.object({
      name: textField({ max: 100 }),
      allowed_origins: z.array(origin).max(LIST_LENGTH).nullish(),
      allowed_ips: z.array(network).max(LIST_LENGTH).nullish(),
      rate_limit_per_hour: integerField({ min: 1, max: 2_147_483_647 }).nullish(),
      domain: z
        .union([z.literal(''), origin])
        .nullish()
        .meta({
          description: 'Older form of `allowed_origins` with one entry',
          deprecated: true,
        }),
    }),
    response: { 201: createdKeyAnswer },
    async handler({ input: { body }, user, request }) {
      const actor = `user:${user.id}`;
      const command = identifyCommand(secretKey, actor, request, body);
      const key = command.requestHash === undefined ? randomApiKey() : derivedApiKey(secretKey, command.id);
      const outcome = await commands.submit({
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
        },
      });
      const { created_at, ...kept } = keptKey.parse(acceptedResult(command, outcome));
      return { status: 201, body: { ...kept, key, created_at: iso(created_at), last_used_at: null } };
    },
  });

  const list = defineRoute({
    method: 'GET',
    path: '/api/users/auth/api-keys/',
    summary: "List the caller's API keys",
    tag: 'Account and keys',
    auth: 'session',
    response: { 200: z.array(listedKeyAnswer) },
    async handler({ user, served }) {
      const keys = await keysOfUser(pool, served.schema('accounts'), user.id);
      const body = keys.map(({ id, name, created_at }) => ({
        id,
        name,
        created_at: iso(created_at),
        last_used_at: null,
      }));
      return { status: 200, body };
    },
  });

  const remove = defineRoute({
    method: 'POST',
    path: '/api/users/auth/api-keys/delete/',
    summary: 'Delete an API key',
    description: 'A request with the key is answered 401 from then on.',
    tag: 'Account and keys',
    auth: 'session',
    isIdempotent: true,
    body: z.object({ key_id: integerField() }),
    response: { 200: doneAnswer },
    async handler({ input: { body }, user, request }) {
      const actor = `user:${user.id}`;
      const command = identifyCommand(secretKey, actor, request, body);
      const outcome = await commands.submit({
        type: 'api-key.delete',
        actor,
        ...command,
        body: { user_id: user.id, key_id: body.key_id },
      });
      acceptedResult(command, outcome);
      return { status: 200, body: { success: true as const, detail: 'API key deleted.' } };
    },
  });

  return [create, list, remove];
}
