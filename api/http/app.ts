import { randomUUID } from 'node:crypto';

import cors from '@koa/cors';
import Router from '@koa/router';
import Koa from 'koa';

import type { Logger } from '../../infra/log.ts';
import { Counter, Histogram } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';
import type { Network } from '../../infra/networks.ts';
import { clientAddress } from './client-address.ts';
import { callerOf, handleRoute, showIndexedBlock } from './handle-route.ts';
import type { RouteHandlerDeps } from './handle-route.ts';
import { HttpError, notFound, toHttpError } from './errors.ts';
import { limitHeldAnswers } from './held-answers.ts';
import { createBodyIntake } from './body-intake.ts';
import { mountConsole } from '../console/console.ts';
import type { Console } from '../console/console.ts';
import { mountHealth } from '../health/health.ts';
import type { HealthDeps } from '../health/health.ts';
import { API_VERSION, describeApi } from './openapi.ts';
import type { RequestState } from './request-state.ts';
import type { Route } from './route.ts';
import { limitSending } from './sending-limits.ts';
import type { UsageCounter } from '../auth/key-usage.ts';

export interface AppDeps extends RouteHandlerDeps, HealthDeps {
  readonly routes: readonly Route[];
  readonly log: Logger;
  readonly metrics: Registry;
  readonly trustedProxies: readonly Network[];
  readonly usage: Pick<UsageCounter, 'count'>;
  /** The web application; absent or null: its paths are answered 404. */
  readonly console?: Console | null;
}

const EXPOSED_HEADERS = [
  'X-Request-Id',
  'X-API-Version',
  'X-Indexed-Block',
  'Retry-After',
  'RateLimit',
  'RateLimit-Policy',
  'WWW-Authenticate',
  'Location',
  'ETag',
  'Accept-Ranges',
  'Content-Range',
  'X-Export-Block',
  'X-Export-Block-Hash',
  'X-Export-Id',
  'X-Stream-Cursor',
  'X-Next-Start-Time',
  'X-Complete-From',
  'X-Complete',
];

const SECURITY_HEADERS = {
  'Cache-Control': 'no-store',
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
  'Cross-Origin-Resource-Policy': 'cross-origin',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
  'X-Frame-Options': 'DENY',
};

type Middleware = Koa.Middleware<RequestState>;

/** The Koa application: middleware, outermost first, and the declared routes. */
export function createApp(deps: AppDeps): Koa<RequestState> {
  const { log, routes } = deps;
  const app = new Koa<RequestState>();
  // Replaces Koa's handler, which prints requests. Route errors are answered and logged below; these come after an answer.
  app.on('error', (error: unknown) => log.debug({ err: error }, 'connection error'));
  app.use(limitAnswers);
  app.use(identifyRequest(deps));
  app.use(recordRequest(deps));
  app.use(allowOrigins());
  app.use(answerErrors(log));
  app.use(holdAnswers());
  const router = createRouter(deps);
  app.use(router.routes());
  app.use((context) => answerUnrouted(context, router, routes));
  return app;
}

/** A streamed answer has eleven or twelve listeners for its end: above ten, Node warns of a leak. */
const MAX_LISTENERS = 20;

const limitAnswers: Middleware = async (context, next) => {
  context.res.setMaxListeners(MAX_LISTENERS);
  await next();
  if (context.state.isStreamed !== true) limitSending(context, context.state.place);
};

/** Sets the request's id, its client address and the headers of every answer. */
function identifyRequest({ trustedProxies, indexedHeight, log }: AppDeps): Middleware {
  let hasWarned = false;
  const warnOfProxy = (peer: string): void => {
    if (hasWarned) return;
    hasWarned = true;
    log.warn(
      { peer },
      'X-Forwarded-For ignored: if the peer is a proxy, add it to TRUSTED_PROXIES, or all its clients count as one',
    );
  };
  return async (context, next) => {
    const { state } = context;
    const sentId = context.get('X-Request-Id');
    state.requestId = /^[A-Za-z0-9._:-]{1,128}$/.test(sentId) ? sentId : randomUUID();
    const peer = context.req.socket.remoteAddress ?? '';
    const forwardedFor = context.get('X-Forwarded-For') || undefined;
    state.ip = clientAddress(peer, forwardedFor, trustedProxies);
    const isIgnored =
      forwardedFor !== undefined && state.ip === clientAddress(peer, undefined, trustedProxies);
    if (isIgnored) warnOfProxy(peer);
    state.note = {};
    context.set({
      ...SECURITY_HEADERS,
      'X-Request-Id': state.requestId,
      'X-API-Version': API_VERSION,
    });
    showIndexedBlock(context, indexedHeight());
    await next();
  };
}

/** Counts and logs every request once it is answered. */
function recordRequest({ log, metrics, usage }: AppDeps): Middleware {
  const seconds = new Histogram({
    name: 'tds_http_request_seconds',
    help: 'Time from receiving a request to its answer, in seconds',
    labelNames: ['method', 'route', 'status'],
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
    registers: [metrics],
  });
  const refusals = new Counter({
    name: 'tds_key_refusals_total',
    help: 'Calls rejected because of their API key or a blocked address, by reason',
    labelNames: ['reason'],
    registers: [metrics],
  });
  return async (context, next) => {
    const startedAt = performance.now();
    await next();
    const elapsedMs = performance.now() - startedAt;
    const { path, note, requestId, ip } = context.state;
    const labels = { method: context.method, route: path ?? 'none', status: context.status };
    seconds.observe(labels, elapsedMs / 1000);
    const { keyId, userId, refusal } = note;
    if (refusal !== undefined) refusals.inc({ reason: refusal });
    if (keyId !== undefined) usage.count(keyId, context.status);
    // The route as declared, never the path, query, headers or body: these may hold secrets.
    const caller = { request_id: requestId, ip, key_id: keyId, user_id: userId, refusal };
    log.info({ ...caller, ...labels, ms: Math.round(elapsedMs) }, 'request');
  };
}

function allowOrigins(): Middleware {
  const allowAnyOrigin = cors({
    origin: '*',
    exposeHeaders: EXPOSED_HEADERS,
    allowMethods: 'GET,HEAD,POST,PUT,PATCH,DELETE',
    maxAge: 86_400,
    keepHeadersOnError: false,
  });
  return async (context, next) => {
    await (context.path.startsWith('/api/') ? allowAnyOrigin(context, next) : next());
  };
}

/** Answers an error that a route throws; then sets the headers that depend on the status. */
function answerErrors(log: Logger): Middleware {
  return async (context, next) => {
    try {
      await next();
    } catch (error) {
      const answer = toHttpError(error);
      const { requestId, route } = context.state;
      if (answer.status >= 500) {
        // Not an error when the client disconnected; an intended 5xx is in the request's own log line.
        const level = context.res.closed || error instanceof HttpError ? 'debug' : 'error';
        log[level]({ err: error, request_id: requestId }, 'request failed');
      }
      context.status = answer.status;
      context.set(answer.headers);
      context.body = {
        ...(route?.hasSuccessFlag === true ? { success: false } : {}),
        ...(route?.hasErrorText === true ? { error: answer.message } : {}),
        detail: answer.message,
        code: answer.code,
        status: answer.status,
        request_id: requestId,
        ...(answer.errors === undefined ? {} : { errors: answer.errors }),
        ...answer.extra,
      };
    }
    const { settle } = context.state.note;
    if (settle !== undefined) context.set(await settle(context.status));
  };
}

/** Counts what is read; an answer to a write must not be refused. */
function holdAnswers(): Middleware {
  const hold = limitHeldAnswers();
  return async (context, next) => {
    await next();
    const { body, method, res, state } = context;
    if (state.route === undefined || method !== 'GET' || !Buffer.isBuffer(body)) return;
    hold(res, callerOf(state.ip, state.note).user, body.length);
  };
}

function createRouter(deps: AppDeps): Router<RequestState> {
  // Paths are case-sensitive as in Django; both slash forms match, without a redirect.
  const router = new Router<RequestState>({ sensitive: true, strict: false });
  mountHealth(router, deps);
  if (deps.console) mountConsole(router, deps.console);
  // Serialized once: it takes up to 30 ms, and nobody needs a key to request it.
  const document = Buffer.from(JSON.stringify(describeApi(deps.routes)));
  router.get('/api/openapi.json', (context) => {
    context.state.path = '/api/openapi.json';
    context.type = 'json';
    context.body = document;
  });
  // A fixed path is registered before one whose parameter would match it.
  const parameterCount = ({ path }: Route): number => path.split('{').length;
  const shared = { ...deps, bodies: createBodyIntake() };
  for (const route of deps.routes.toSorted((a, b) => parameterCount(a) - parameterCount(b))) {
    router.register(patternOf(route), [route.method], handleRoute(route, shared));
  }
  return router;
}

const patternOf = ({ path }: Route): string => path.replace(/\/$/, '').replaceAll(/\{([a-z_]+)\}/g, ':$1');

/** Answers a path and method without a route: 404, 405, or the allowed methods to OPTIONS. */
function answerUnrouted(
  context: Koa.ParameterizedContext<RequestState>,
  router: Router<RequestState>,
  routes: readonly Route[],
): void {
  const { path, method } = context;
  const layers = router.match(path, method).path.filter((layer) => layer.methods.length > 0);
  const allowed = new Set(layers.flatMap((layer) => layer.methods));
  if (allowed.size === 0) throw notFound();
  allowed.add('OPTIONS');
  const allow = [...allowed].join(', ');
  if (method === 'OPTIONS') {
    context.status = 204;
    context.set('Allow', allow);
    return;
  }
  const patterns = new Set(layers.map((layer) => layer.path));
  const isFlagged = routes.some((route) => route.hasSuccessFlag && patterns.has(patternOf(route)));
  throw new HttpError(405, 'method_not_allowed', `Method "${method}" not allowed.`, {
    headers: { Allow: allow },
    extra: isFlagged ? { success: false } : {},
  });
}
