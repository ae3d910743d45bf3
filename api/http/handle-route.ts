import { Readable } from 'node:stream';

import type { RouterMiddleware } from '@koa/router';
import type { Context } from 'koa';
import { z } from 'zod';

import { createYielding } from '../../infra/lifecycle.ts';
import { createIdentify } from '../auth/identify.ts';
import type { IdentifyDeps } from '../auth/identify.ts';
import { createAnswerCache } from './answer-cache.ts';
import { bodyReader } from './body.ts';
import type { ReadInTurn } from './body.ts';
import type { CallerNote, RequestState } from './request-state.ts';
import type { RequestInfo, Route } from './route.ts';
import type { ServedBuilds } from '../../projections/served.ts';

export interface RouteHandlerDeps extends IdentifyDeps {
  readonly servedBuilds: () => Promise<ServedBuilds>;
  /** The highest height that can be queried; null before the first block. */
  readonly indexedHeight: () => number | null;
}

interface SharedByRoutes {
  readonly readInTurn: ReadInTurn;
}

/** Size of the parts in which a large answer is sent. */
const PART_CHARS = 65_536;
/** Limit of sending an answer: until then it is held in memory, and its request may keep a place for reads. */
const SENDING_MS = 60_000;

/** The middleware that runs a declared route. */
export function handleRoute(
  route: Route,
  deps: RouteHandlerDeps & SharedByRoutes,
): RouterMiddleware<RequestState> {
  const cache = createAnswerCache(deps.now);
  const readBody = bodyReader(route.bodyBytes);
  return async (context) => {
    const { state } = context;
    state.route = route;
    state.path = route.path;
    const request = requestInfo(context, route, state);
    let builds: Promise<ServedBuilds> | null = null;
    const readServed = (): Promise<ServedBuilds> => (builds ??= deps.servedBuilds());
    // Part of the cache key: an answer is never sent with an X-Indexed-Block that it does not cover.
    const height = deps.indexedHeight();
    const { served, answer } = await route.begin({
      params: context.params,
      request,
      identify: createIdentify(deps, route, request, readServed, state.note),
      served: readServed,
      body: () => deps.readInTurn(context, state.ip, () => readBody(context)),
    });
    const key =
      route.isCacheable && served.state !== null ? `${served.state} ${height} ${context.url}` : null;
    const cached = key === null ? undefined : cache.get(key);
    if (cached !== undefined) {
      context.type = 'json';
      context.body = cached;
      return;
    }
    const { status, body, headers, noStore } = await answer();
    limitSending(context);
    context.status = status;
    context.set(headers ?? {});
    const items = itemsOf(route, status, body);
    if (items !== null) {
      sendItems(context, items);
      return;
    }
    const declared = asDeclared(route, status, route.response[status], body);
    if (key === null || status !== 200) {
      context.body = declared;
      return;
    }
    const json = Buffer.from(JSON.stringify(declared));
    context.type = 'json';
    context.body = json;
    if (noStore !== true) cache.set(key, json);
  };
}

function requestInfo(context: Context, route: Route, { requestId, ip, note }: RequestState): RequestInfo {
  const controller = new AbortController();
  context.res.once('close', () => controller.abort());
  return {
    id: requestId,
    method: context.method,
    path: route.path,
    ip,
    query: readQuery(context.querystring),
    caller: () => callerOf(ip, note),
    signal: controller.signal,
    header: (name) => context.get(name),
  };
}

function callerOf(ip: string, { keyId, userId }: CallerNote): string {
  if (keyId !== undefined) return `key ${keyId}`;
  return userId === undefined ? `address ${ip}` : `user ${userId}`;
}

/** Of duplicate parameters the last counts; an empty one counts as absent. */
export function readQuery(querystring: string): Readonly<Record<string, string>> {
  const last = new Map(new URLSearchParams(querystring));
  return Object.fromEntries([...last].filter(([, value]) => value !== ''));
}

/** The items of an answer that are to be sent as they are made, as the route declares them; null: the body is whole. */
function itemsOf(route: Route, status: number, body: unknown): Iterable<unknown> | null {
  const schema = route.response[status];
  if (!(schema instanceof z.ZodArray) || Array.isArray(body)) return null;
  const { element } = schema as z.ZodArray<z.ZodType>;
  return Iterator.from(body as Iterable<unknown>).map((item) => asDeclared(route, status, element, item));
}

/** Disconnects a client that reads too slowly. */
function limitSending({ res }: Context): void {
  const tooSlow = setTimeout(() => res.destroy(), SENDING_MS);
  res.once('close', () => clearTimeout(tooSlow));
}

/** Sends a JSON array part by part, as fast as the client reads. */
function sendItems(context: Context, items: Iterable<unknown>): void {
  context.type = 'json';
  context.body = Readable.from(jsonParts(items), { objectMode: false, highWaterMark: PART_CHARS });
}

async function* jsonParts(items: Iterable<unknown>): AsyncGenerator<string> {
  const yielding = createYielding();
  let part = '[';
  let separator = '';
  for (const item of items) {
    part += separator + JSON.stringify(item);
    separator = ',';
    if (part.length < PART_CHARS) continue;
    yield part;
    part = '';
    await yielding();
  }
  yield `${part}]`;
}

/** The body as the schema declares it, without undeclared fields; throws when it does not match. */
function asDeclared(
  route: Route,
  status: number,
  schema: z.ZodType | null | undefined,
  body: unknown,
): unknown {
  if (schema === null) return null;
  const parsed = schema?.safeParse(body);
  if (parsed?.success === true) return parsed.data;
  const problem = { route: route.path, status, issues: parsed?.error?.issues ?? 'status not declared' };
  throw new TypeError(`Answer does not match the route's schema: ${JSON.stringify(problem)}`);
}
