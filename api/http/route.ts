import type { Readable } from 'node:stream';

import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { asOfParameters, askedBlock, refuseAsOf } from './as-of.ts';
import type { AsOf } from './as-of.ts';
import { notFound } from './errors.ts';
import type { Caller } from './read-queue.ts';
import type { SignedCall } from '../sync/signature.ts';
import { parseInput } from './validation.ts';

/** The caller, by session. */
export interface CallerUser {
  readonly id: number;
  readonly username: string;
  readonly email: string | null;
}

/** The caller of a route that takes an API key: the key, or on a `GET` also the session of a user. */
export type CallerKey =
  | {
      readonly id: number;
      readonly userId: number;
      readonly tokenHash: null;
      /** `restrictionsOf` the key at the call. */
      readonly restrictions: string;
    }
  | { readonly id: null; readonly userId: number; readonly tokenHash: string };

/** Identifies the caller by each kind of credentials; throws 401 or 403. */
export interface Identify {
  none(): Promise<Record<never, never>>;
  /** On a `GET`, `SESSION_AS_KEY` with a bearer token counts as well. */
  key(): Promise<{ key: CallerKey }>;
  session(): Promise<{ user: CallerUser; tokenHash: string }>;
  /** The session of an admin; 403 for any other user. */
  admin(): Promise<{ user: CallerUser }>;
  /** Checks that the signature headers are present and current. The route, which knows the key, verifies the signature. */
  signature(): Promise<{ signedCall: SignedCall }>;
  /** An `api-key` header takes precedence over a bearer token. */
  'key-or-session'(): Promise<{ key: CallerKey; user?: never } | { user: CallerUser; key?: never }>;
}
export type Auth = keyof Identify;
type Identity<A extends Auth> = Awaited<ReturnType<Identify[A]>>;

/** The request besides its parsed input. */
export interface RequestInfo {
  readonly id: string;
  readonly method: string;
  /** HEAD, which a route of GET answers too. A route with a `StreamedAnswer` makes no stream for it. */
  readonly isHead: boolean;
  /** The route's path as declared. */
  readonly path: string;
  /** The client's address, forwarded by trusted proxies only. */
  readonly ip: string;
  /** Query parameters as sent: of duplicates the last; empty ones are dropped. */
  readonly query: Readonly<Record<string, string>>;
  /** Who shares the places of one caller. Call it after `identify`. */
  caller(): Caller;
  /** The place for reads that the request keeps until its answer is sent, if it does. */
  readonly place: { isWanted: () => boolean };
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
  /** The height of `X-Min-Block`: nothing cached below it may be answered. null without it; throws 400 if it is invalid. */
  minBlock(): number | null;
  /** When the request has waited long enough for that height, in milliseconds of `performance.now()`. */
  readonly waitEndsAt: number;
  /** A request header, '' when absent. */
  header(name: string): string;
}

/** The input of a route, not yet parsed. */
interface Call {
  readonly params: Readonly<Record<string, string>>;
  readonly request: RequestInfo;
  readonly pool: Sql;
  readonly identify: Identify;
  /** Reads the served builds, once the index has reached the height of `X-Min-Block`. */
  served(): Promise<ServedBuilds>;
  /** The block that the client asks for, and a check to run after the reads of the answer. */
  asOf(
    served: ServedBuilds,
    asked: NonNullable<ReturnType<typeof askedBlock>>,
  ): Promise<{ readonly block: AsOf; confirm(): Promise<void> }>;
  /** The parsed JSON body; throws 400, 413 or 415. */
  body(): Promise<unknown>;
}

/** Declares an answer that is not JSON and is sent while it is made: its media types and headers, each with a description. */
export class StreamedAnswer {
  readonly content: Readonly<Record<string, string>>;
  /** Those of the request that decide about the answer, and its own. */
  readonly headers: { readonly request?: Descriptions; readonly response?: Descriptions };
  constructor(content: Descriptions, headers: StreamedAnswer['headers'] = {}) {
    this.content = content;
    this.headers = headers;
  }
}

type Descriptions = Readonly<Record<string, string>>;

/** The body of a `StreamedAnswer`. An error of the stream breaks the connection, so that the client sees it. */
export interface StreamedBody {
  readonly mediaType: string;
  /** null: only headers are asked for (`isHead`). */
  readonly stream: Readable | null;
  /** Trailers, asked for once the stream has ended. Declare their names in the `Trailer` header. */
  readonly trailers?: () => Readonly<Record<string, string>>;
}

/** Answer schemas by status; null: no body. */
export type Responses = Readonly<Record<number, z.ZodType | StreamedAnswer | null>>;

/** What a handler returns: a declared status with its declared body. */
type Reply<R extends Responses> = {
  [S in keyof R]: {
    status: S;
    /** Items of an array may be made while they are sent: pass an iterable for an answer too large for memory. */
    body: R[S] extends z.ZodArray<infer E>
      ? Iterable<z.input<E>>
      : R[S] extends z.ZodType
        ? z.input<R[S]>
        : R[S] extends StreamedAnswer
          ? StreamedBody
          : null;
    /** null: not sent. */
    headers?: Readonly<Record<string, string | null>>;
    /** Do not cache: the answer is incomplete. */
    noStore?: boolean;
  };
}[keyof R];

interface HandlerContext<P extends z.ZodObject, Q extends z.ZodObject, B extends z.ZodType> {
  readonly input: { readonly params: z.output<P>; readonly query: z.output<Q>; readonly body: z.output<B> };
  readonly served: ServedBuilds;
  /** PostgreSQL, read-only: statements wait their turn among callers. */
  readonly pool: Sql;
  readonly request: RequestInfo;
  /** The block as of which to answer; null: the newest. */
  readonly asOf: AsOf | null;
}

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** What a route declares besides its input and its answers. */
interface RouteFacts {
  readonly method: Method;
  /** Names the operation in the OpenAPI document and in clients. */
  readonly id: string;
  readonly summary: string;
  readonly description?: string;
  /** Groups routes in the OpenAPI document. */
  readonly tag: string;
  /** Invalid path parameters are answered 400 with their names; without it, 404. */
  readonly reportsInvalidPath?: true;
  /** A retry with the same `Idempotency-Key` header gets the first answer (`identifyCommand`). */
  readonly isIdempotent?: true;
  /** Its answers depend on the query and chain data only, so they may be cached while that is unchanged. */
  readonly isCacheable?: true;
  /**
   * Of a route of chain data: it takes `as_of_block`, and its reads stop at `asOf`; or why it cannot. Absent: the answer does
   * not depend on blocks.
   */
  readonly asOf?: true | string;
  /** With `format=csv` the rows in `data` of its answer are sent as CSV. Declare the parameter with `format()`. */
  readonly hasCsv?: true;
  /** Calls by session allowed per user in any minute; default: unlimited. */
  readonly sessionCallsPerMinute?: number;
  /** Calls allowed per client address in any minute. */
  readonly addressCallsPerMinute?: number;
  /** Limit of the request body in bytes. */
  readonly bodyBytes?: number;
  /** Limits that do not follow from the declaration: what is limited, a colon, and how far (`statedLimits`). */
  readonly limits?: readonly string[];
  /** Error bodies repeat `detail` as `error`. */
  readonly hasErrorText?: true;
  /** Statuses of errors besides those that follow from the declaration. */
  readonly errors?: readonly number[];
  /** By status: bodies of errors with fields that only this route has. Each schema has an id. */
  readonly errorBodies?: Readonly<Record<number, z.ZodType>>;
}

interface Declaration<
  A extends Auth,
  P extends z.ZodObject,
  Q extends z.ZodObject,
  B extends z.ZodType,
  R extends Responses,
> extends RouteFacts {
  /**
   * With parameters in braces, and a trailing slash, such as `/api/tokens/{address}/`; or the path of a file. Served with and
   * without the slash.
   */
  readonly path: `/${string}/` | `/${string}.json` | `/${string}.{format}`;
  readonly auth: A;
  readonly params?: P;
  readonly query?: Q;
  readonly body?: B;
  readonly response: R;
  /**
   * The path of the created resource, for the Location header of a 201. Parameters in braces are filled from the body.
   */
  readonly location?: R extends { readonly 201: unknown } ? `/${string}/` : never;
  handler(this: void, context: HandlerContext<P, Q, B> & Identity<A>): Promise<Reply<NoInfer<R>>>;
}

/**
 * Sent as `api-key`, it selects the session of the call, so that a browser reads public data with the log-in alone. Without it, a
 * session is not accepted in place of a key.
 */
export const SESSION_AS_KEY = 'session';

/** Whether `SESSION_AS_KEY` is accepted. */
export const acceptsSessionAsKey = ({ auth, method }: Pick<Route, 'auth' | 'method'>): boolean =>
  auth === 'key' && method === 'GET';

/** A declared route without its type parameters. */
export interface Route extends RouteFacts {
  readonly path: string;
  readonly auth: Auth;
  readonly params?: z.ZodObject;
  readonly query?: z.ZodObject;
  readonly body?: z.ZodType;
  readonly response: Responses;
  readonly location?: string;
  /** Successes have `success: true`; errors of the route then have `success: false`. */
  readonly hasSuccessFlag: boolean;
  /** Identifies the caller and parses the input; `answer` then runs the handler. */
  begin(call: Call): Promise<Begun>;
}

/** A request whose caller is known and whose input is valid. */
interface Begun {
  readonly served: ServedBuilds;
  /** null: the answer is as of the newest block. */
  readonly asOf: AsOf | null;
  readonly answer: () => Promise<RouteAnswer>;
}

export interface RouteAnswer {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string | null>> | undefined;
  readonly noStore?: boolean | undefined;
}

const emptyObject = z.object({});

/** Parses path parameters; 404 when they cannot be the id of a resource. */
function parsePath<S extends z.ZodType>(schema: S | undefined, value: unknown): z.output<S> {
  const parsed = (schema ?? emptyObject).safeParse(value);
  if (!parsed.success) throw notFound();
  return parsed.data as z.output<S>;
}

/** The query of a route, with the parameters that `askedBlock` reads. */
function withAsOf<Q extends z.ZodObject>(query: Q | undefined): Q {
  return (query ?? emptyObject).extend(asOfParameters.shape) as unknown as Q;
}

/** A path whose parameters are filled from the fields of a body. */
function fillPath(path: string, body: unknown): string {
  const fields = new Map<string, unknown>(Object.entries(body ?? {}));
  return path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(fields.get(name))));
}

/**
 * Declares a route once: validation, the answer's shape and the OpenAPI document all come from here. The caller is
 * identified first, then the input is parsed, then the handler runs.
 */
export function defineRoute<
  A extends Auth,
  R extends Responses,
  P extends z.ZodObject = typeof emptyObject,
  Q extends z.ZodObject = typeof emptyObject,
  B extends z.ZodType = typeof emptyObject,
>(declaration: Declaration<A, P, Q, B, R>): Route {
  const { handler, ...facts } = declaration;
  const { auth, params, body, response } = facts;
  const query = declaration.asOf === true ? withAsOf(declaration.query) : declaration.query;
  // An undeclared part has the type of `emptyObject`, which the compiler cannot infer from `undefined`.
  const parse = <S extends z.ZodType>(schema: S | undefined, value: unknown): z.output<S> =>
    schema === undefined ? ({} as z.output<S>) : parseInput(schema, value);
  return {
    ...facts,
    ...(query === undefined ? {} : { query }),
    hasSuccessFlag: Object.values(response).some(
      (schema) => schema instanceof z.ZodObject && 'success' in schema.shape,
    ),
    async begin(call) {
      const identity = (await call.identify[auth]()) as Identity<A>;
      const parsed = {
        params:
          declaration.reportsInvalidPath === true
            ? parse(params, call.params)
            : parsePath(params, call.params),
        query: parse(query, call.request.query),
      };
      const sent = body === undefined ? undefined : await call.body();
      const input = { ...parsed, body: parse(body, sent) };
      if (typeof declaration.asOf === 'string') refuseAsOf(call.request.query, declaration.asOf);
      if (declaration.asOf !== undefined)
        refuseAsOf(Object(sent), declaration.asOf === true ? 'Give it in the query.' : declaration.asOf);
      const asked = declaration.asOf === true ? askedBlock(call.request.query) : null;
      const served = await call.served();
      const found = asked === null ? null : await call.asOf(served, asked);
      const asOf = found?.block ?? null;
      const context = { input, served, pool: call.pool, request: call.request, asOf, ...identity };
      return {
        served,
        asOf,
        answer: async () => {
          // A row may be missing because the block was reverted meanwhile.
          const { status, ...rest } = await handler(context).catch(async (error: unknown) => {
            await found?.confirm();
            throw error;
          });
          await found?.confirm();
          const { location } = declaration;
          if (Number(status) !== 201 || location === undefined) return { status: Number(status), ...rest };
          return {
            status: 201,
            ...rest,
            headers: { ...rest.headers, Location: fillPath(location, rest.body) },
          };
        },
      };
    },
  };
}
