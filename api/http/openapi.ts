import { z } from 'zod';
import { createDocument } from 'zod-openapi';
import type { ZodOpenApiOperationObject, ZodOpenApiPathsObject, ZodOpenApiResponseObject } from 'zod-openapi';

import { errorBody, revertedBlockBody } from '../../schemas/api/common.ts';
import { nftMetadataUnavailableBody } from '../../schemas/api/nft.ts';
import { syncConflictBody } from '../../schemas/api/sync.ts';
import { examples } from './examples.ts';
import { minBlockHeader } from './min-block.ts';
import { SESSION_AS_KEY, StreamedAnswer, acceptsSessionAsKey } from './route.ts';
import type { Auth, Responses, Route } from './route.ts';
import { commonLimits, statedLimits } from './stated-limits.ts';

/** Version of the API contract; also sent as `X-API-Version`. */
export const API_VERSION = '1.0.0';

const security: Readonly<Record<Auth, Record<string, string[]>[]>> = {
  none: [],
  key: [{ ApiKey: [] }],
  session: [{ Bearer: [] }],
  admin: [{ Bearer: [] }],
  signature: [{ Timestamp: [], Signature: [] }],
  'key-or-session': [{ ApiKey: [] }, { Bearer: [] }],
};
/** `SESSION_AS_KEY` with the token of the session. */
const keyOrNamedSession = [{ ApiKey: [] }, { ApiKey: [], Bearer: [] }];

/** Declared once: every response refers to it. */
const sharedHeader = (schema: z.ZodType<string | undefined>, id: string, description?: string) =>
  schema.meta({ header: { id, ...(description === undefined ? {} : { description }) } });

const headers = z.object({
  'X-Request-Id': sharedHeader(z.string(), 'X-Request-Id'),
  'X-API-Version': sharedHeader(z.string(), 'X-API-Version'),
  'X-Indexed-Block': sharedHeader(
    z.string().optional(),
    'X-Indexed-Block',
    'With `as_of_block`, that height. Otherwise the highest indexed height (for holders and for figures by hour or day, the highest counted one); the response may include newer blocks. Absent before the first block',
  ),
  'RateLimit-Policy': sharedHeader(
    z.string().optional(),
    'RateLimit-Policy',
    "The caller's limit: `q` calls in `w` seconds; absent without a limit",
  ),
  RateLimit: sharedHeader(
    z.string().optional(),
    'RateLimit',
    '`r` calls left; the oldest counted call expires in `t` seconds',
  ),
});

const createdHeaders = headers.extend({
  Location: sharedHeader(z.string(), 'Location', 'Path of the created resource'),
});

/** Statuses of errors that may say when to try again. */
const RETRYABLE: ReadonlySet<number> = new Set([403, 429, 503]);
const retryableHeaders = headers.extend({
  'Retry-After': sharedHeader(
    z.string().optional(),
    'Retry-After',
    'Seconds after which to try again; absent where that would not help',
  ),
});

const challengeHeaders = headers.extend({
  'WWW-Authenticate': sharedHeader(
    z.enum(['ApiKey', 'Bearer']),
    'WWW-Authenticate',
    'The credential that is missing or invalid: an API key or the token of a session',
  ),
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
        'A retry with the same key within 48 hours returns the first response; the same key with another body returns 422',
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
      description: [
        'Every path works with and without its trailing slash. An empty query parameter counts as absent, the last value of a repeated one is used, and unknown ones are ignored.',
        commonLimits(),
        'Examples are answers of a service on a simulated chain: lists are cut to their first one or two items, and secrets are replaced.',
      ].join(' '),
    },
    servers: [{ url: '/' }],
    paths,
    components: {
      securitySchemes: {
        ApiKey: {
          type: 'apiKey',
          in: 'header',
          name: 'api-key',
          description: `An API key; or \`${SESSION_AS_KEY}\`, with a bearer token, on operations that accept both`,
        },
        Bearer: { type: 'http', scheme: 'bearer' },
        Timestamp: { type: 'apiKey', in: 'header', name: 'X-Vendor-Timestamp' },
        Signature: { type: 'apiKey', in: 'header', name: 'X-Vendor-Signature' },
      },
    },
  });
}

function describeRoute(route: Route): ZodOpenApiOperationObject {
  const errors = errorStatuses(route).map((status) => [status, errorResponse(route, status)]);
  const answers = Object.keys(route.response).map((status) => [
    status,
    {
      description: statusDescriptions[Number(status)] ?? 'Answer',
      headers: (status === '201' ? createdHeaders : headers).extend(
        texts(streamedHeaders(route, status).response),
      ),
      ...contentOf(route, status),
    },
  ]);
  return {
    operationId: route.id,
    summary: route.summary,
    ...descriptionOf(route),
    tags: [route.tag],
    security: acceptsSessionAsKey(route) ? keyOrNamedSession : security[route.auth],
    requestParams: {
      ...(route.params === undefined ? {} : { path: route.params }),
      ...(route.query === undefined ? {} : { query: route.query }),
      ...(route.isIdempotent ? { header: idempotencyKey } : {}),
      ...(route.method === 'GET'
        ? { header: minBlockHeader.extend(texts(streamedHeaders(route, '200').request)) }
        : {}),
    },
    ...(route.body === undefined
      ? {}
      : {
          requestBody: {
            required: isBodyRequired(route.body),
            content: { 'application/json': { schema: route.body, example: examples.bodies[route.id] } },
          },
        }),
    responses: Object.fromEntries([...errors, ...answers]),
  };
}

function streamedHeaders({ response }: Route, status: string): StreamedAnswer['headers'] {
  const answer = response[Number(status)];
  return answer instanceof StreamedAnswer ? answer.headers : {};
}

/** Optional headers with these descriptions. */
const texts = (descriptions: Readonly<Record<string, string>> = {}) =>
  Object.fromEntries(
    Object.entries(descriptions).map(([name, description]) => [
      name,
      z.string().optional().meta({ description }),
    ]),
  );

/** A 409 as of a block has a body of its own, and a route may declare others. */
function errorResponse(
  { asOf, method, errors = [], errorBodies = {} }: Route,
  status: number,
): ZodOpenApiResponseObject {
  const own = errorBodies[status];
  if (own !== undefined)
    return describeError(status, { id: `Error${status}${own.meta()?.id ?? ''}`, schemas: [own] });
  if (status !== 409 || asOf !== true) return errorResponses[status] ?? describeError(status);
  return method !== 'GET' || errors.includes(409) ? conflictOrRevertedBlock : revertedBlock;
}

function contentOf(route: Route, status: string): Pick<ZodOpenApiResponseObject, 'content'> {
  const schemas = mediaOf(route.response[Number(status)], route.hasCsv === true);
  if (schemas === null) return {};
  const recorded = examples.answers[route.id]?.[status] ?? {};
  const media = Object.entries(schemas).map(([type, schema]) => [
    type,
    { schema, ...(recorded[type] === undefined ? {} : { example: recorded[type] }) },
  ]);
  return { content: Object.fromEntries(media) };
}

/** Schemas of an answer by media type; null: it has no body. */
function mediaOf(
  answer: Responses[number] | undefined,
  hasCsv: boolean,
): Readonly<Record<string, z.ZodType>> | null {
  if (answer === null || answer === undefined) return null;
  if (!(answer instanceof StreamedAnswer)) {
    const csv = z.string().meta({ description: 'The rows of `data`, after a header line' });
    return { 'application/json': answer, ...(hasCsv ? { 'text/csv': csv } : {}) };
  }
  const media = Object.entries(answer.content).map(([type, description]) => [
    type,
    z.string().meta({ description, ...(type.startsWith('text/') ? {} : { format: 'binary' }) }),
  ]);
  return Object.fromEntries(media);
}

/** An absent body is parsed as `{}`. */
const isBodyRequired = (body: z.ZodType): boolean => !body.safeParse({}).success;

function descriptionOf(route: Route): { description?: string } {
  const { auth, description, asOf } = route;
  const sentences = [
    auth === 'admin' ? 'For admins only (`tds users add --admin`).' : [],
    description ?? [],
    typeof asOf === 'string' ? `\`as_of_block\` is rejected: ${asOf}` : [],
  ].flat();
  const limits = statedLimits(route);
  const list = limits.length === 0 ? [] : ['**Limits**', limits.map((limit) => `- ${limit}`).join('\n')];
  const paragraphs = [...(sentences.length === 0 ? [] : [sentences.join(' ')]), ...list];
  return paragraphs.length === 0 ? {} : { description: paragraphs.join('\n\n') };
}

const statusDescriptions: Readonly<Record<number, string>> = {
  200: 'OK',
  201: 'Created',
  202: 'Accepted',
  204: 'No content',
  206: 'Part of the file',
  304: 'The client has the file already',
  400: 'Invalid input; `errors` lists the fields',
  401: 'Missing or invalid credentials',
  403: 'Not allowed with these credentials',
  404: 'The resource or the page does not exist',
  408: 'The body arrived too slowly',
  409: 'The current state does not allow the operation',
  412: 'The file has another ETag than `If-Match` names',
  413: 'The body is too large',
  415: 'The body is not JSON',
  416: 'The file does not have these bytes',
  422: 'The Idempotency-Key was used with another body',
  429: 'Too many requests; retry after `Retry-After` seconds',
  431: 'URL and headers are too large',
  500: 'Server error',
  503: 'Unavailable; retry after `Retry-After` seconds',
};

/** Bodies with fields that not every error has. */
const specialBodies: readonly z.ZodType[] = [revertedBlockBody, syncConflictBody, nftMetadataUnavailableBody];

/** The recorded errors whose most specific schema is one of these. */
function errorExamples(status: number, schemas: readonly z.ZodType[]): Record<string, { value: unknown }> {
  const schemaOf = (body: unknown): z.ZodType =>
    specialBodies.find((schema) => schema.safeParse(body).success) ?? errorBody;
  const named = Object.entries(examples.errors[status] ?? {});
  return Object.fromEntries(
    named.filter(([, body]) => schemas.includes(schemaOf(body))).map(([name, value]) => [name, { value }]),
  );
}

function describeError(
  status: number,
  { id = `Error${status}`, schemas = [errorBody] }: { id?: string; schemas?: readonly z.ZodType[] } = {},
): ZodOpenApiResponseObject {
  const schema = schemas.length > 1 ? z.union(schemas) : (schemas[0] ?? errorBody);
  return {
    id,
    description: statusDescriptions[status] ?? 'Error',
    headers: status === 401 ? challengeHeaders : RETRYABLE.has(status) ? retryableHeaders : headers,
    content: { 'application/json': { schema, examples: errorExamples(status, schemas) } },
  };
}

/** Declared once: every operation refers to them. */
const errorResponses: Readonly<Record<number, ZodOpenApiResponseObject>> = Object.fromEntries(
  Object.keys(statusDescriptions).map((status) => [status, describeError(Number(status))]),
);
const revertedBlock = describeError(409, { id: 'Error409RevertedBlock', schemas: [revertedBlockBody] });
const conflictOrRevertedBlock = describeError(409, {
  id: 'Error409OrRevertedBlock',
  schemas: [revertedBlockBody, errorBody],
});

/** Statuses of the errors that every route of this kind may answer, and the route's own. */
function errorStatuses({
  auth,
  body,
  reportsInvalidPath,
  query,
  method,
  isIdempotent,
  asOf,
  errors = [],
}: Route): number[] {
  const hasInput =
    method === 'GET' || body !== undefined || query !== undefined || reportsInvalidPath || isIdempotent;
  return [
    ...(hasInput ? [400] : []),
    ...(auth === 'none' || auth === 'signature' ? [] : [401]),
    ...(auth === 'key' || auth === 'key-or-session' || auth === 'admin' ? [403] : []),
    404,
    ...(body === undefined ? [] : [408, 413, 415]),
    ...(method === 'GET' && asOf !== true ? [] : [409]),
    ...(isIdempotent ? [422] : []),
    429,
    431,
    500,
    503,
    ...errors,
  ];
}
