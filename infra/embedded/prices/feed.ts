import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

import { z } from 'zod';

import { readBody, send, serveOnLoopback } from '../loopback.ts';
import { chartAnswer, currentAnswer, historicalAnswer, WireError } from './answers.ts';
import { createFeedFaults, feedFaultSchema } from './faults.ts';
import type { FeedFaults } from './faults.ts';
import { tokenListAnswer } from './token-list.ts';

export interface SimulatedFeed {
  /** Base of the price feed; the token list is at `/v1/starknet/tokens` of it. */
  readonly url: string;
  readonly faults: FeedFaults;
  /** Paths of the calls so far, without the faults' own. */
  readonly calls: readonly string[];
  /** Moves the feed's clock away from the machine's. */
  setClock(now: () => number): void;
  close(): Promise<void>;
}

const commandSchema = z.discriminatedUnion('command', [
  z.object({ command: z.literal('fault'), fault: feedFaultSchema }),
  z.object({ command: z.literal('clearFaults') }),
]);

/**
 * A price feed that speaks DefiLlama's coins interface and a token list that speaks AVNU's, on loopback, for whoever has
 * no network or wants faults: `POST /control {"command":"fault","fault":{"kind":…}}` and `{"command":"clearFaults"}`.
 */
export async function createSimulatedFeed(
  options: {
    readonly port?: number;
    readonly seed?: string;
    /** A new price comes so often. */
    readonly everySeconds?: number;
    /** Answers /control, over HTTP. */
    readonly control?: boolean;
    /** Unix milliseconds. */
    readonly now?: () => number;
  } = {},
): Promise<SimulatedFeed> {
  const { port = 0, seed = 'demo', everySeconds = 60, control = false } = options;
  let clock = options.now ?? Date.now;
  const now = (): number => clock();
  const faults = createFeedFaults(now);
  const calls: string[] = [];

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const url = new URL(request.url ?? '/', 'http://feed');
    const parts = url.pathname.split('/').slice(1).map(decodeURIComponent);
    if (parts[0] === 'control' && control) return await command(request, response);
    calls.push(url.pathname);
    if (calls.length > 10_000) calls.shift();
    const strikes = faults.strike(parts[0] ?? '');
    const struck = (kind: string) => strikes.find(({ fault }) => fault.kind === kind)?.fault;
    await pause(struck('latency')?.ms ?? 0);
    if (struck('hang') !== undefined) return;
    const busy = struck('http429');
    if (busy !== undefined) {
      const headers = { 'retry-after': String(busy.retryAfter ?? 1) };
      return send(response, 429, '{"message":"Too many requests"}', headers);
    }
    if (struck('http500') !== undefined) return send(response, 500, '{"message":"Internal server error"}');
    if (struck('not-json') !== undefined)
      return send(response, 200, '<!doctype html><p>Checking your browser');

    const wanted = { seed, everySeconds, now: now(), strikes, query: url.searchParams };
    const json = JSON.stringify(read(parts, wanted));
    send(
      response,
      200,
      struck('truncated') === undefined ? json : json.slice(0, Math.floor(json.length / 2)),
    );
  };

  const command = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (request.method === 'POST') {
      const asked = commandSchema.parse(JSON.parse(await readBody(request)));
      if (asked.command === 'fault') faults.add(asked.fault);
      else faults.clear();
    }
    send(response, 200, JSON.stringify({ faults: faults.list(), calls: calls.length }));
  };

  const { url, close } = await serveOnLoopback((request, response) => {
    answer(request, response).catch((error: unknown) => {
      const isWire = error instanceof WireError;
      const isCallers = isWire || error instanceof z.ZodError || error instanceof SyntaxError;
      const message = error instanceof Error ? error.message : String(error);
      send(response, isWire ? error.status : isCallers ? 400 : 500, JSON.stringify({ message }));
    });
  }, port);
  return {
    url,
    faults,
    calls,
    setClock: (own) => {
      clock = own;
    },
    close,
  };
}

/** What a call is answered when nothing goes wrong with the whole of it. */
function read(parts: readonly string[], wanted: Parameters<typeof currentAnswer>[1]): unknown {
  const [first, second, third, ...more] = parts;
  if (first === 'prices' && second === 'current' && third !== undefined && more.length === 0)
    return currentAnswer(third, wanted);
  if (first === 'prices' && second === 'historical' && third !== undefined && more.length === 1)
    return historicalAnswer(third, more[0] ?? '', wanted);
  if (first === 'chart' && second !== undefined && third === undefined) return chartAnswer(second, wanted);
  if (first === 'v1' && second === 'starknet' && third === 'tokens' && more.length === 0)
    return tokenListAnswer(wanted);
  throw new WireError(404, 'Not Found');
}
