import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

import { z } from 'zod';

import { send, serveOnLoopback } from '../../infra/embedded/loopback.ts';
import { feedAnswer, FeedError } from '../../infra/embedded/prices/answers.ts';

/** A fault of the simulated feed; the comment of each kind names the other fields it takes. */
const feedFaultSchema = z.object({
  kind: z.enum([
    'latency', // responds after `ms`
    'http429', // with Retry-After: `retryAfter` seconds
    'http500',
    'hang', // never responds
    'not-json', // an HTML page with status 200
    'truncated', // half of the JSON
    'garbage-price', // `value` instead of the price; default: a text
    'other-address', // the price under the address of another token
    'factor', // the price times `factor`; default: 1,000
    'stale', // the price of `ms` ago; default: two days
    'low-confidence',
    'missing', // the token is unknown
    'stuck', // the price and time at which the fault was set
  ]),
  /** Default: all; the first part of the path: prices, chart, v1. */
  paths: z.array(z.string()).readonly().optional(),
  /** Addresses; default: all. */
  tokens: z.array(z.string()).readonly().optional(),
  /** Number of calls it applies to; default: all until it is cleared. */
  times: z.int().min(1).optional(),
  ms: z.int().min(0).optional(),
  retryAfter: z.int().min(0).optional(),
  factor: z.number().positive().optional(),
  value: z.unknown().optional(),
});
export type FeedFault = z.infer<typeof feedFaultSchema>;

interface Struck {
  readonly fault: FeedFault;
  /** Unix milliseconds. */
  readonly setAt: number;
}

interface FeedFaults {
  add(fault: FeedFault): void;
  clear(): void;
  list(): readonly { readonly fault: FeedFault; readonly struck: number }[];
  /** The faults that apply to a call; each is counted. */
  strike(path: string): readonly Struck[];
}

function createFeedFaults(now: () => number): FeedFaults {
  let active: { fault: FeedFault; setAt: number; struck: number }[] = [];
  return {
    add: (fault) => void active.push({ fault, setAt: now(), struck: 0 }),
    clear: () => {
      active = [];
    },
    list: () => active.map(({ fault, struck }) => ({ fault, struck })),
    strike: (path) =>
      active.filter((one) => {
        const { times = Infinity, paths } = one.fault;
        if (one.struck >= times || !(paths?.includes(path) ?? true)) return false;
        one.struck += 1;
        return true;
      }),
  };
}

export interface SimulatedFeed {
  /** Base of the price feed; the token list is at `/v1/starknet/tokens`. */
  readonly url: string;
  readonly faults: FeedFaults;
  /** Paths of the calls so far. */
  readonly calls: readonly string[];
  /** Replaces the clock of the feed. */
  setClock(now: () => number): void;
  close(): Promise<void>;
}

/** The simulated price feed and token list in this process, with faults. */
export async function createSimulatedFeed(
  options: { readonly seed?: string; readonly everySeconds?: number; readonly now?: () => number } = {},
): Promise<SimulatedFeed> {
  const { seed = 'demo', everySeconds = 60 } = options;
  let clock = options.now ?? Date.now;
  const now = (): number => clock();
  const faults = createFeedFaults(now);
  const calls: string[] = [];

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://feed');
    calls.push(url.pathname);
    const strikes = faults.strike(url.pathname.split('/')[1] ?? '');
    const struck = (kind: FeedFault['kind']) => strikes.find(({ fault }) => fault.kind === kind)?.fault;
    await sleep(struck('latency')?.ms ?? 0);
    if (struck('hang') !== undefined) return;
    const busy = struck('http429');
    if (busy !== undefined) {
      const headers = { 'retry-after': String(busy.retryAfter ?? 1) };
      return send(response, 429, '{"message":"Too many requests"}', headers);
    }
    if (struck('http500') !== undefined) return send(response, 500, '{"message":"Internal server error"}');
    if (struck('not-json') !== undefined)
      return send(response, 200, '<!doctype html><p>Checking your browser');
    const json = JSON.stringify(faultyAnswer(url, { seed, everySeconds, now: now() }, strikes));
    send(
      response,
      200,
      struck('truncated') === undefined ? json : json.slice(0, Math.floor(json.length / 2)),
    );
  }

  const { url, close } = await serveOnLoopback((request, response) => {
    answer(request, response).catch((error: unknown) => {
      const message = error instanceof Error ? error.message : String(error);
      send(response, error instanceof FeedError ? error.status : 500, JSON.stringify({ message }));
    });
  });
  return { url, faults, calls, setClock: (own) => (clock = own), close };
}

const DAY_MS = 86_400_000;
const UNKNOWN_TOKEN = 'starknet:0x0bad00000000000000000000000000000000000000000000000000000000bad';

const pricesAnswer = z.object({ coins: z.record(z.string(), z.record(z.string(), z.unknown())) });
const chartPoints = z.array(z.object({ timestamp: z.number(), price: z.number() }));

/** The answer of the feed with the faults of single tokens. */
function faultyAnswer(
  url: URL,
  options: { seed: string; everySeconds: number; now: number },
  strikes: readonly Struck[],
): unknown {
  const isListed = (address: bigint) => struckToken(strikes, 'missing', address) === undefined;
  const answerAt = (now: number): unknown => feedAnswer(url, { ...options, now, isListed });
  const parsed = pricesAnswer.safeParse(answerAt(options.now));
  if (!parsed.success) return answerAt(options.now);
  const isCurrent = url.pathname.startsWith('/prices/current/');
  return {
    coins: Object.fromEntries(
      Object.entries(parsed.data.coins).map(([key, coin]) => {
        const address = BigInt(key.slice('starknet:'.length));
        const struck = (kind: FeedFault['kind']) => struckToken(strikes, kind, address);
        const stale = struck('stale');
        const staleAt = stale === undefined ? null : options.now - (stale.fault.ms ?? 2 * DAY_MS);
        const at = struck('stuck')?.setAt ?? staleAt;
        const shown = isCurrent && at !== null ? (pricesAnswer.parse(answerAt(at)).coins[key] ?? coin) : coin;
        return [
          struck('other-address') === undefined ? key : UNKNOWN_TOKEN,
          withFaultyPrice(
            shown,
            struck('garbage-price')?.fault,
            struck('factor')?.fault,
            struck('low-confidence'),
          ),
        ];
      }),
    ),
  };
}

function withFaultyPrice(
  coin: Record<string, unknown>,
  garbage: FeedFault | undefined,
  factor: FeedFault | undefined,
  unsure: Struck | undefined,
): Record<string, unknown> {
  const faulty = (price: unknown): unknown => {
    if (garbage !== undefined) return garbage.value ?? 'about a dollar';
    return factor === undefined ? price : Number(price) * (factor.factor ?? 1000);
  };
  const points = chartPoints.safeParse(coin['prices']);
  return {
    ...coin,
    ...(points.success
      ? { prices: points.data.map(({ timestamp, price }) => ({ timestamp, price: faulty(price) })) }
      : { price: faulty(coin['price']) }),
    ...(unsure === undefined ? {} : { confidence: 0.1 }),
  };
}

/** The fault of this kind that applies to a token. */
function struckToken(
  strikes: readonly Struck[],
  kind: FeedFault['kind'],
  address: bigint,
): Struck | undefined {
  return strikes.find(
    ({ fault }) => fault.kind === kind && (fault.tokens?.some((one) => BigInt(one) === address) ?? true),
  );
}
