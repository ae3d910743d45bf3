import type { RouterMiddleware } from '@koa/router';
import type { Context } from 'koa';

import { createIdentify } from '../auth/identify.ts';
import type { IdentifyDeps } from '../auth/identify.ts';
import { createAnswerCache } from './answer-cache.ts';
import { bodyReader } from './body.ts';
import type { CallerNote, RequestState } from './request-state.ts';
import type { RequestInfo, Route } from './route.ts';
import type { ServedBuilds } from '../../projections/served.ts';

export interface RouteHandlerDeps extends IdentifyDeps {
  readonly servedBuilds: () => Promise<ServedBuilds>;
  /** The highest height that can be queried; null before the first block. */
  readonly indexedHeight: () => number | null;
}

/** The middleware that runs a declared route. */
export function handleRoute(route: Route, deps: RouteHandlerDeps): RouterMiddleware<RequestState> {
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
      body: () => readBody(context),
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
    const declared = asDeclared(route, status, body);
    context.status = status;
    context.set(headers ?? {});
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

/** The body as the route declares it, without undeclared fields; throws when it does not match. */
function asDeclared(route: Route, status: number, body: unknown): unknown {
  const schema = route.response[status];
  if (schema === null) return null;
  const parsed = schema?.safeParse(body);
  if (parsed?.success === true) return parsed.data;
  const problem = { route: route.path, status, issues: parsed?.error?.issues ?? 'status not declared' };
  throw new TypeError(`Answer does not match the route's schema: ${JSON.stringify(problem)}`);
}
