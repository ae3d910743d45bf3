import { z } from 'zod';

import { notFound } from './errors.ts';
import type { SignedCall } from '../sync/signature.ts';
import { parseInput } from './validation.ts';

/** The names that readers use, all of one moment; read once a request. */
export interface ServedBuilds {
  /** ClickHouse table by placeholder. */
  table(placeholder: string): string;
  /** Postgres schema by projection. */
  schema(projection: string): string;
  /** While this stays the same, so does what is told of the chain; null: not known. */
  readonly state: string | null;
  /** The same of what is told of blocks alone. */
  readonly chainState?: string | null;
}

/** Who calls, by session. */
export interface CallerUser {
  readonly id: number;
  readonly username: string;
  readonly email: string | null;
}

/** Who calls, by API key. */
export interface CallerKey {
  readonly id: number;
  readonly userId: number;
}

/** How each kind of route learns who calls; every one of them throws 401 or 403. */
export interface Identify {
  none(): Promise<Record<never, never>>;
  key(): Promise<{ key: CallerKey }>;
  session(): Promise<{ user: CallerUser; tokenHash: string }>;
  /** The signature's headers are there and of now; whether it is right is for the route to tell, which knows the key. */
  signature(): Promise<{ signedCall: SignedCall }>;
  /** An `api-key` header goes before a bearer token. */
  'key-or-session'(): Promise<{ key: CallerKey; user?: never } | { user: CallerUser; key?: never }>;
}
export type Auth = keyof Identify;
type Identity<A extends Auth> = Awaited<ReturnType<Identify[A]>>;

/** What a handler may want to know of the request besides its input. */
export interface RequestInfo {
  readonly id: string;
  readonly method: string;
  /** The route's path as declared. */
  readonly path: string;
  /** The client's address, found through trusted proxies only. */
  readonly ip: string;
  /** The query as it was sent: the last of several with one name, empty ones left out. */
  readonly query: Readonly<Record<string, string>>;
  /** Aborted when the client goes away. */
  readonly signal: AbortSignal;
  /** A request header, '' when absent. */
  header(name: string): string;
}

/** One request on its way into a route. */
interface Call {
  readonly params: Readonly<Record<string, string>>;
  readonly request: RequestInfo;
  readonly identify: Identify;
  served(): Promise<ServedBuilds>;
  /** The parsed JSON body; throws 400, 413 or 415. */
  body(): Promise<unknown>;
}

/** Answer schemas by status; null where there is no body. */
export type Responses = Readonly<Record<number, z.ZodType | null>>;

/** What a handler returns: a declared status with the body that it promises. */
type Reply<R extends Responses> = {
  [S in keyof R]: {
    status: S;
    body: R[S] extends z.ZodType ? z.input<R[S]> : null;
    headers?: Readonly<Record<string, string>>;
    /** Not to be given again: what it lacks may be there in a moment. */
    noStore?: boolean;
  };
}[keyof R];

interface HandlerContext<P extends z.ZodObject, Q extends z.ZodObject, B extends z.ZodType> {
  readonly input: { readonly params: z.output<P>; readonly query: z.output<Q>; readonly body: z.output<B> };
  readonly served: ServedBuilds;
  readonly request: RequestInfo;
}

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

interface Declaration<
  A extends Auth,
  P extends z.ZodObject,
  Q extends z.ZodObject,
  B extends z.ZodType,
  R extends Responses,
> {
  readonly method: Method;
  /** With the trailing slash, parameters in braces: `/api/tokens/{address}/`. Served with and without the slash. */
  readonly path: `/${string}/`;
  readonly summary: string;
  readonly description?: string;
  /** Groups routes in the OpenAPI document. */
  readonly tag: string;
  readonly auth: A;
  readonly params?: P;
  /** A path of another shape is refused by the names of its parts (400); without it, it is nobody's (404). */
  readonly refusesPath?: true;
  readonly query?: Q;
  readonly body?: B;
  readonly response: R;
  /**
   * Where what a 201 made is found: a path whose braces are filled in from the body. Without a page of its own, the list
   * that it is in.
   */
  readonly location?: R extends { readonly 201: unknown } ? `/${string}/` : never;
  /** A repeat with the same `Idempotency-Key` header is answered as the first was (`identifyCommand`). */
  readonly isIdempotent?: true;
  /** Its answers rest on the query and on what is told of the chain alone: one may be given again while that stays. */
  readonly isCacheable?: true;
  /** Calls that a user may make by session in any minute; without it, as many as they like. */
  readonly sessionCallsPerMinute?: number;
  /** Calls that an address may make in any minute. */
  readonly addressCallsPerMinute?: number;
  /** Bytes of a request body, where it may be larger than others. */
  readonly bodyBytes?: number;
  /** Errors carry their text as `error`, too. */
  readonly hasErrorText?: true;
  /** Statuses of errors that are the route's own, besides those that its declaration makes plain. */
  readonly errors?: readonly number[];
  handler(context: HandlerContext<P, Q, B> & Identity<A>): Promise<Reply<NoInfer<R>>>;
}

/** A declared route, its types closed in: everything about it comes from the declaration. */
export interface Route {
  readonly method: Method;
  readonly path: string;
  readonly summary: string;
  readonly description: string | undefined;
  readonly tag: string;
  readonly auth: Auth;
  readonly params: z.ZodObject | undefined;
  readonly refusesPath: boolean;
  readonly query: z.ZodObject | undefined;
  readonly body: z.ZodType | undefined;
  readonly response: Responses;
  readonly location: string | undefined;
  readonly isIdempotent: boolean;
  readonly errors: readonly number[];
  readonly isCacheable: boolean;
  readonly sessionCallsPerMinute: number | undefined;
  readonly addressCallsPerMinute: number | undefined;
  readonly bodyBytes: number | undefined;
  readonly hasErrorText: boolean;
  /** True where successes carry `success: true`; errors of the route then carry `success: false`. */
  readonly hasSuccessFlag: boolean;
  /** Settles who calls and what is asked, before anything is answered. */
  begin(call: Call): Promise<{ readonly served: ServedBuilds; readonly answer: () => Promise<RouteAnswer> }>;
}

export interface RouteAnswer {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly noStore?: boolean | undefined;
}

const nothing = z.object({});

/** What a path names; 404 where its parts cannot be anybody's id. */
function named<S extends z.ZodType>(schema: S | undefined, value: unknown): z.output<S> {
  const parsed = (schema ?? nothing).safeParse(value);
  if (!parsed.success) throw notFound();
  return parsed.data as z.output<S>;
}

/** A path with its braces filled in from the fields of a body. */
function filledIn(path: string, body: unknown): string {
  const fields = new Map<string, unknown>(Object.entries(body ?? {}));
  return path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(fields.get(name))));
}

/**
 * Declares a route once: validation, the answer's shape and the OpenAPI document all come from here. Who calls is
 * settled first, then the input is parsed, then the handler runs.
 */
export function defineRoute<
  A extends Auth,
  R extends Responses,
  P extends z.ZodObject = typeof nothing,
  Q extends z.ZodObject = typeof nothing,
  B extends z.ZodType = typeof nothing,
>(declaration: Declaration<A, P, Q, B, R>): Route {
  const { method, path, summary, description, tag, auth, params, query, body, response } = declaration;
  // A part that is not declared has the type of `nothing`, which the compiler cannot see from `undefined`.
  const parse = <S extends z.ZodType>(schema: S | undefined, value: unknown): z.output<S> =>
    schema === undefined ? ({} as z.output<S>) : parseInput(schema, value);
  return {
    method,
    path,
    summary,
    description,
    tag,
    auth,
    params,
    refusesPath: declaration.refusesPath === true,
    query,
    body,
    response,
    location: declaration.location,
    isIdempotent: declaration.isIdempotent === true,
    isCacheable: declaration.isCacheable === true,
    errors: declaration.errors ?? [],
    sessionCallsPerMinute: declaration.sessionCallsPerMinute,
    addressCallsPerMinute: declaration.addressCallsPerMinute,
    bodyBytes: declaration.bodyBytes,
    hasErrorText: declaration.hasErrorText === true,
    hasSuccessFlag: Object.values(response).some(
      (schema) => schema instanceof z.ZodObject && 'success' in schema.shape,
    ),
    async begin(call) {
      const identity = (await call.identify[auth]()) as Identity<A>;
      const input = {
        params: declaration.refusesPath === true ? parse(params, call.params) : named(params, call.params),
        query: parse(query, call.request.query),
        body: parse(body, body === undefined ? undefined : await call.body()),
      };
      const served = await call.served();
      const context = { input, served, request: call.request, ...identity };
      return {
        served,
        answer: async () => {
          const { status, ...rest } = await declaration.handler(context);
          const { location } = declaration;
          if (Number(status) !== 201 || location === undefined) return { status: Number(status), ...rest };
          return {
            status: 201,
            ...rest,
            headers: { ...rest.headers, Location: filledIn(location, rest.body) },
          };
        },
      };
    },
  };
}
