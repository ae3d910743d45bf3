import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';

import type { RouterMiddleware } from '@koa/router';
import type { Context } from 'koa';

import { createIdentify } from '../auth/identify.ts';
import type { IdentifyDeps } from '../auth/identify.ts';
import { createAnswerCache } from './answer-cache.ts';
import { createAnswersUnderWay } from './answers-under-way.ts';
import { csvHeaders, csvParts } from './answer-csv.ts';
import { PART_CHARS, jsonParts } from './answer-json.ts';
import { bodyReader } from './body.ts';
import type { BodyIntake } from './body-intake.ts';
import { addressBlock } from './client-address.ts';
import { WAIT_MS, minBlockOf, waitForBlock } from './min-block.ts';
import type { ReachesHeight } from './min-block.ts';
import { confirmAsOf, findAsOf } from './as-of.ts';
import type { ClickHouseFor } from './clickhouse.ts';
import type { PoolFor } from './postgres.ts';
import type { CallerNote, RequestState } from './request-state.ts';
import type { Caller } from './read-queue.ts';
import { StreamedAnswer } from './route.ts';
import type { RequestInfo, Route, RouteAnswer, StreamedBody } from './route.ts';
import { dropIfSlow, dropIfStalled } from './sending-limits.ts';
import type { ServedBuilds } from '../../projections/served.ts';

export interface RouteHandlerDeps extends IdentifyDeps {
  readonly servedBuilds: () => Promise<ServedBuilds>;
  /** The highest height that can be queried; null before the first block. */
  readonly indexedHeight: () => number | null;
  /** A client of a streamed answer that takes nothing for so long is dropped; a minute by default. */
  readonly stallMs?: number;
  readonly reachesHeight: ReachesHeight;
  readonly clickhouseFor: ClickHouseFor;
  readonly poolFor: PoolFor;
}

interface SharedByRoutes {
  readonly bodies: BodyIntake;
}

/** The source of a streamed answer stays open while its client takes nothing. */
const STALL_MS = 60_000;

/** The middleware that runs a declared route. */
export function handleRoute(
  route: Route,
  deps: RouteHandlerDeps & SharedByRoutes,
): RouterMiddleware<RequestState> {
  const cache = createAnswerCache(deps.now);
  const underWay = createAnswersUnderWay();
  const readBody = bodyReader(deps.bodies, route.bodyBytes);
  return async (context) => {
    const { state } = context;
    state.route = route;
    state.path = route.path;
    const request = requestInfo(context, route, state);
    state.place = request.place;
    let builds: Promise<ServedBuilds> | null = null;
    const readServed = (): Promise<ServedBuilds> => (builds ??= deps.servedBuilds());
    const { served, asOf, answer } = await route.begin({
      params: context.params,
      request,
      pool: deps.poolFor(request),
      identify: createIdentify(deps, route, request, readServed, state.note),
      served: async () => {
        const minBlock = request.minBlock();
        if (minBlock === null) return await readServed();
        await waitForBlock(deps.reachesHeight, minBlock, request);
        showIndexedBlock(context, deps.indexedHeight());
        // Those that were read to identify the caller may be older than the block.
        return await deps.servedBuilds();
      },
      async asOf(builds, asked) {
        const block = await findAsOf(deps.clickhouseFor(request), builds, asked);
        // Another client: the time of the first one may be over by then.
        const confirm = async (): Promise<void> =>
          await confirmAsOf(deps.clickhouseFor(request), builds, block, asked);
        return { block, confirm };
      },
      body: () => readBody(context, addressBlock(state.ip)),
    });
    if (asOf !== null) showIndexedBlock(context, asOf.height);
    // Part of the cache key: an answer is never sent with an X-Indexed-Block that it does not cover.
    const height = deps.indexedHeight();
    const key =
      route.isCacheable && served.state !== null
        ? `${served.state} ${height} ${asOf?.hash} ${context.url}`
        : null;
    const make = async (): Promise<Buffer | null> => {
      const result = await answer();
      const json = await send(context, route, result, { ...request, stallMs: deps.stallMs ?? STALL_MS });
      if (json === null || key === null || result.status !== 200) return null;
      if (result.noStore !== true) cache.set(key, json);
      return json;
    };
    if (key === null) {
      await make();
      return;
    }
    const ofCaller = `${request.caller().name} ${key}`;
    const known = cache.get(key) ?? (await underWay.share(ofCaller, request.signal, make));
    if (known === null) return;
    context.type = 'json';
    context.body = known;
  };
}

export function showIndexedBlock(context: Pick<Context, 'set'>, height: number | null): void {
  if (height !== null) context.set('X-Indexed-Block', String(height));
}

/** Made once: an error with its stack for every response would take longer than many answers. */
const CLOSED = new DOMException('The response is closed', 'AbortError');

function requestInfo(context: Context, route: Route, { requestId, ip, note }: RequestState): RequestInfo {
  const controller = new AbortController();
  context.res.once('close', () => controller.abort(CLOSED));
  return {
    id: requestId,
    method: context.method,
    isHead: context.method === 'HEAD',
    path: route.path,
    ip,
    query: readQuery(context.querystring),
    caller: () => callerOf(ip, note),
    place: { isWanted: () => false },
    signal: controller.signal,
    minBlock: () => (route.method === 'GET' ? minBlockOf(context.get('X-Min-Block')) : null),
    waitEndsAt: performance.now() + WAIT_MS,
    header: (name) => context.get(name),
  };
}

export function callerOf(ip: string, { keyId, userId }: CallerNote): Caller {
  const user = userId === undefined ? `network ${addressBlock(ip)}` : `user ${userId}`;
  return {
    user,
    name: keyId === undefined ? user : `key ${keyId}`,
    isAnonymous: userId === undefined,
  };
}

/** Of duplicate parameters the last counts; an empty one counts as absent. */
export function readQuery(querystring: string): Readonly<Record<string, string>> {
  const last = new Map(new URLSearchParams(querystring));
  return Object.fromEntries([...last].filter(([, value]) => value !== ''));
}

/** Sends an answer; returns its text if there is one and it is whole. */
async function send(
  context: Context,
  route: Route,
  { status, body, headers }: RouteAnswer,
  { place, query, stallMs }: Pick<RequestInfo, 'place' | 'query'> & { readonly stallMs: number },
): Promise<Buffer | null> {
  context.status = status;
  for (const [name, value] of Object.entries(headers ?? {})) {
    if (value === null) context.remove(name);
    else context.set(name, value);
  }
  const declared = route.response[status];
  if (declared instanceof StreamedAnswer) {
    stream(context, body as StreamedBody, { stallMs, place });
    return null;
  }
  if (declared === null) {
    context.body = null;
    return null;
  }
  if (route.hasCsv && status === 200 && query['format'] === 'csv') {
    context.set(csvHeaders(body));
    context.type = 'text/csv';
    context.body = Buffer.from(await text(csvParts(route, body)));
    return null;
  }
  context.type = 'json';
  const parts = jsonParts(route, status, body);
  if (isLazy(body)) {
    context.body = Readable.from(parts, { objectMode: false, highWaterMark: PART_CHARS });
    return null;
  }
  const json = Buffer.from(await text(parts));
  context.body = json;
  return json;
}

function stream(
  context: Context,
  { mediaType, stream: parts, trailers }: StreamedBody,
  { stallMs, place }: Pick<RequestInfo, 'place'> & { readonly stallMs: number },
): void {
  context.type = mediaType;
  if (parts === null) return;
  // Before Koa's own listener, which closes the connection: a slow client would first read for minutes what is buffered. An
  // answer has no socket while an earlier one is being sent.
  parts.once('error', () => context.res.socket?.resetAndDestroy());
  parts.once('close', () => {
    if (!parts.readableEnded) context.res.destroy();
  });
  // HTTP/1.0 has no chunks, and so no trailers.
  const withTrailers = trailers !== undefined && context.req.httpVersion !== '1.0';
  if (!withTrailers) context.remove('Trailer');
  // Before Koa's own listener, which ends the response.
  if (withTrailers) parts.once('end', () => context.res.addTrailers(trailers()));
  context.body = parts;
  context.state.isStreamed = true;
  dropIfStalled(context, stallMs);
  dropIfSlow(context, place);
}

/** Items that are to be made while they are sent. */
const isLazy = (body: unknown): boolean =>
  typeof body === 'object' && body !== null && !Array.isArray(body) && Symbol.iterator in body;
