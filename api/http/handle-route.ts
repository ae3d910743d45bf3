import type { RouterMiddleware } from '@koa/router';
import type { Context } from 'koa';
import type { z } from 'zod';

import type { Logger } from '../../infra/log.ts';
import { keepAnswers } from './answer-cache.ts';
import { bodyReader } from './body.ts';
import type { RequestState } from './request-state.ts';
import { createIdentify } from '../auth/identify.ts';
import type { IdentifyDeps } from '../auth/identify.ts';
import type { RequestInfo, Route, ServedBuilds } from './route.ts';

export interface DispatchDeps extends IdentifyDeps {
  readonly log: Logger;
  readonly servedBuilds: () => Promise<ServedBuilds>;
  /** An answer that is not what its route declares is 500; else it is logged and sent as it is. */
  readonly isStrict: boolean;
  /** The highest height that can be queried; null before the first. */
  readonly indexedHeight: () => number | null;
}

/** Runs a declared route for a request. */
export function dispatch(route: Route, deps: DispatchDeps): RouterMiddleware<RequestState> {
  const kept = keepAnswers(deps.now);
  const readBody = bodyReader(route.bodyBytes);
  return async (context) => {
    const { state } = context;
    state.route = route;
    state.path = route.path;
    const request = requestInfo(context, route, state);
    let builds: Promise<ServedBuilds> | null = null;
    const readServed = (): Promise<ServedBuilds> => (builds ??= deps.servedBuilds());
    // The height that the answer's headers tell: an answer that does not hold it yet is never given with it.
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
    const again = key === null ? undefined : kept.get(key);
    if (again !== undefined) {
      context.type = 'json';
      context.body = again;
      return;
    }
    const { status, body, headers, noStore } = await answer();
    const shaped = shape(route, status, body, deps);
    context.status = status;
    context.set(headers ?? {});
    if (key === null || status !== 200) {
      context.body = shaped;
      return;
    }
    const json = Buffer.from(JSON.stringify(shaped));
    context.type = 'json';
    context.body = json;
    if (noStore !== true) kept.keep(key, json);
  };
}

function requestInfo(context: Context, route: Route, { requestId, ip }: RequestState): RequestInfo {
  const controller = new AbortController();
  context.res.once('close', () => controller.abort());
  return {
    id: requestId,
    method: context.method,
    path: route.path,
    ip,
    query: readQuery(context.querystring),
    signal: controller.signal,
    header: (name) => context.get(name),
  };
}

/** The last of several with one name counts, and an empty one is absent. */
export function readQuery(querystring: string): Readonly<Record<string, string>> {
  const last = new Map(new URLSearchParams(querystring));
  return Object.fromEntries([...last].filter(([, value]) => value !== ''));
}

/** The answer as the route declares it: fields that it does not name are left out. */
function shape(route: Route, status: number, body: unknown, { log, isStrict }: DispatchDeps): unknown {
  const schema: z.ZodType | null | undefined = route.response[status];
  if (schema === null) return null;
  const parsed = schema?.safeParse(body);
  if (parsed?.success === true) return parsed.data;
  const problem = { route: route.path, status, issues: parsed?.error?.issues ?? 'status not declared' };
  if (isStrict) throw new TypeError(`Answer differs from its declaration: ${JSON.stringify(problem)}`);
  log.error(problem, 'answer differs from its declaration');
  return body;
}
