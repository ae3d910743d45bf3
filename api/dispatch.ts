import type { RouterMiddleware } from '@koa/router';
import type { Context } from 'koa';
import type { z } from 'zod';

import type { Logger } from '../infra/log.ts';
import type { RequestState } from './request-state.ts';
import { readBody } from './body.ts';
import { createIdentify } from './identify.ts';
import type { IdentifyDeps } from './identify.ts';
import type { RequestInfo, Route, ServedBuilds } from './route.ts';

export interface DispatchDeps extends IdentifyDeps {
  readonly log: Logger;
  readonly servedBuilds: () => Promise<ServedBuilds>;
  /** An answer that is not what its route declares is 500; else it is logged and sent as it is. */
  readonly isStrict: boolean;
}

/** Runs a declared route for a request. */
export function dispatch(route: Route, deps: DispatchDeps): RouterMiddleware<RequestState> {
  return async (context) => {
    const { state } = context;
    state.route = route;
    state.path = route.path;
    const request = requestInfo(context, route, state);
    let builds: Promise<ServedBuilds> | null = null;
    const served = (): Promise<ServedBuilds> => (builds ??= deps.servedBuilds());
    const { status, body, headers } = await route.run({
      params: context.params,
      request,
      identify: createIdentify(deps, request, served, state.note),
      served,
      body: () => readBody(context),
    });
    context.status = status;
    context.set(headers ?? {});
    context.body = shape(route, status, body, deps);
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
