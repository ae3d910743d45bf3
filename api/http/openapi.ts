import { z } from 'zod';
import { createDocument } from 'zod-openapi';
import type { ZodOpenApiOperationObject, ZodOpenApiPathsObject } from 'zod-openapi';

import { errorBody } from '../../schemas/api/common.ts';
import type { Auth, Route } from './route.ts';

/** Of the API's contract; also the `X-API-Version` header. */
export const API_VERSION = '1.0.0';

const security: Readonly<Record<Auth, Record<string, string[]>[]>> = {
  none: [],
  key: [{ ApiKey: [] }],
  session: [{ Bearer: [] }],
  signature: [{ Timestamp: [], Signature: [] }],
  'key-or-session': [{ ApiKey: [] }, { Bearer: [] }],
};

const headers = z.object({
  'X-Request-Id': z.string(),
  'X-API-Version': z.string(),
  'X-Indexed-Block': z
    .string()
    .optional()
    .meta({ description: 'The highest height that can be queried; absent before the first' }),
  'RateLimit-Policy': z.string().optional().meta({
    description: 'What limit holds for the caller: `q` calls in `w` seconds; absent without one',
  }),
  RateLimit: z.string().optional().meta({
    description: 'Where the caller stands: `r` calls left; the oldest one counts no more in `t` seconds',
  }),
});

const madeHeaders = headers.extend({
  Location: z.string().meta({ description: 'The path of what was made, or of the list that it is in' }),
});

const idempotencyKey = z.object({
  'Idempotency-Key': z
    .string()
    .min(1)
    .max(255)
    .regex(/^[\x20-\x7e]*$/)
    .optional()
    .meta({
      description:
        'A repeat under the same key is answered as the first was, for 48 hours; one with another body 422',
    }),
});

/** The OpenAPI 3.1 document of the declared routes. */
export function describeApi(routes: readonly Route[]): ReturnType<typeof createDocument> {
  const paths: ZodOpenApiPathsObject = {};
  for (const route of routes) {
    const methods = (paths[route.path] ??= {});
    const method = route.method.toLowerCase();
    Object.assign(methods, { [method]: describeRoute(route) });
  }
  return createDocument({
    openapi: '3.1.1',
    info: {
      title: 'Token data service',
      version: API_VERSION,
      description:
        'Every path is served with and without its trailing slash. An empty query parameter counts as absent, the last of several with one name counts, and unknown ones are ignored.',
    },
    servers: [{ url: '/' }],
    paths,
    components: {
      securitySchemes: {
        ApiKey: { type: 'apiKey', in: 'header', name: 'api-key' },
        Bearer: { type: 'http', scheme: 'bearer' },
        Timestamp: { type: 'apiKey', in: 'header', name: 'X-Vendor-Timestamp' },
        Signature: { type: 'apiKey', in: 'header', name: 'X-Vendor-Signature' },
      },
    },
  });
}

function describeRoute(route: Route): ZodOpenApiOperationObject {
  const errors = errorStatuses(route).map((status) => [
    status,
    {
      description: reasons[status] ?? 'Error',
      headers,
      content: { 'application/json': { schema: errorBody } },
    },
  ]);
  const answers = Object.entries(route.response).map(([status, schema]) => [
    status,
    {
      description: reasons[Number(status)] ?? 'Answer',
      headers: status === '201' ? madeHeaders : headers,
      ...(schema === null ? {} : { content: { 'application/json': { schema } } }),
    },
  ]);
  return {
    summary: route.summary,
    ...describeUse(route),
    tags: [route.tag],
    security: security[route.auth],
    requestParams: {
      ...(route.params === undefined ? {} : { path: route.params }),
      ...(route.query === undefined ? {} : { query: route.query }),
      ...(route.isIdempotent ? { header: idempotencyKey } : {}),
    },
    ...(route.body === undefined
      ? {}
      : {
          requestBody: {
            required: isBodyRequired(route.body),
            content: { 'application/json': { schema: route.body } },
          },
        }),
    responses: Object.fromEntries([...errors, ...answers]),
  };
}

/** An absent body is read as an empty one. */
const isBodyRequired = (body: z.ZodType): boolean => !body.safeParse({}).success;

function describeUse({ description, sessionCallsPerMinute: calls }: Route): { description?: string } {
  const sentences = [
    description ?? [],
    calls === undefined ? [] : `By session, at most ${calls} calls a minute.`,
  ].flat();
  return sentences.length === 0 ? {} : { description: sentences.join(' ') };
}

const reasons: Readonly<Record<number, string>> = {
  200: 'OK',
  201: 'Created',
  202: 'Accepted',
  204: 'No content',
  400: 'The input is wrong; `errors` names the fields',
  401: 'No credentials, or credentials that are not good',
  403: 'The credentials do not allow it',
  404: 'Not found',
  409: 'The state does not allow it',
  413: 'The body is too large',
  415: 'The body is not JSON',
  422: 'The Idempotency-Key was used with another body',
  429: 'Too many requests; `Retry-After` says when',
  431: 'Address and headers are too large',
  500: 'Server error',
  503: 'Unavailable; `Retry-After` says when',
};

/** The errors that the framework itself answers with, and the route's own. */
function errorStatuses({ auth, body, refusesPath, query, method, isIdempotent, errors }: Route): number[] {
  const hasInput = body !== undefined || query !== undefined || refusesPath || isIdempotent;
  return [
    ...(hasInput ? [400] : []),
    ...(auth === 'none' || auth === 'signature' ? [] : [401]),
    ...(auth === 'key' || auth === 'key-or-session' ? [403] : []),
    404,
    ...(body === undefined ? [] : [413, 415]),
    ...(method === 'GET' ? [] : [409]),
    ...(isIdempotent ? [422] : []),
    429,
    431,
    500,
    503,
    ...errors,
  ];
}
