import { coins } from './coins.ts';
import type { Coin } from './coins.ts';
import { priceAt } from './walk.ts';

/** What the answers of the simulated feed depend on, besides the request. */
export interface FeedOptions {
  readonly seed: string;
  /** Unix milliseconds. */
  readonly now: number;
  /** Seconds between two prices of a token. */
  readonly everySeconds: number;
  /** False for a token to treat as unknown; default: all are known. */
  readonly isListed?: (address: bigint) => boolean;
}

/** A response with another status than 200. */
export class FeedError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** DefiLlama returns no current price older than 12 hours, and no historical one further away than 6. */
const CURRENT_WIDTH_S = 12 * 3600;
const HISTORICAL_WIDTH_S = 6 * 3600;
const MAX_POINTS = 500;
/** Earliest time with prices. */
const FIRST_PRICE_S = Date.UTC(2021, 10, 16) / 1000;

/** By the exact spelling of the address: another spelling is another, unknown coin. */
const byKey: ReadonlyMap<string, Coin> = new Map(coins.map((coin) => [`starknet:${coin.address}`, coin]));

interface Point {
  readonly timestamp: number;
  readonly price: number;
}

/** The answer of DefiLlama's coins API or AVNU's token list to a GET of this URL; throws FeedError. */
export function feedAnswer({ pathname, searchParams }: URL, options: FeedOptions): unknown {
  const [first, second, third = '', ...more] = pathname.split('/').slice(1).map(decodeURIComponent);
  const rest = [third, ...more].filter((part) => part !== '').length;
  const route = `${first}/${second}`;
  if (route === 'prices/current' && rest === 1) return currentPrices(third, options);
  if (route === 'prices/historical' && rest === 2) return historicalPrices(third, more[0] ?? '', options);
  if (route === 'v1/starknet' && third === 'tokens' && rest === 1) return tokenList(searchParams, options);
  if (first === 'chart' && second !== undefined && rest === 0) return chart(second, searchParams, options);
  throw new FeedError(404, 'Not Found');
}

function currentPrices(requested: string, options: FeedOptions): unknown {
  const now = Math.floor(options.now / 1000);
  return answerFor(requested, options, (coin) => {
    const point = pointBefore(coin, now, options);
    return point.timestamp > now - CURRENT_WIDTH_S ? quote(coin, point) : null;
  });
}

function historicalPrices(time: string, requested: string, options: FeedOptions): unknown {
  const at = Number(time);
  if (!Number.isInteger(at) || at < 0) throw new FeedError(400, 'timestamp is not an uint');
  return answerFor(requested, options, (coin) => {
    const point = pointBefore(coin, Math.min(at, Math.floor(options.now / 1000)), options);
    const isNear = point.timestamp >= FIRST_PRICE_S && at - point.timestamp < HISTORICAL_WIDTH_S;
    return isNear ? quote(coin, point) : null;
  });
}

function chart(requested: string, query: URLSearchParams, options: FeedOptions): unknown {
  const now = Math.floor(options.now / 1000);
  const { times, width } = chartTimes(requested, query, now);
  return answerFor(requested, options, (coin) => {
    const points = times
      .map((time) => pointBefore(coin, Math.min(time, now), options))
      .filter(
        ({ timestamp }, i) => timestamp >= FIRST_PRICE_S && Math.abs((times[i] ?? 0) - timestamp) <= width,
      );
    const unique = [...new Map(points.map((point) => [point.timestamp, point])).values()];
    if (unique.length === 0) return null;
    return { ...describe(coin), prices: unique.toSorted((a, b) => a.timestamp - b.timestamp) };
  });
}

/** The times that a chart asks for, and how far from them a price may be. */
function chartTimes(
  requested: string,
  query: URLSearchParams,
  now: number,
): { times: number[]; width: number } {
  const unknown = [...query.keys()].find(
    (name) => !['start', 'end', 'span', 'period', 'searchWidth'].includes(name),
  );
  if (unknown !== undefined) throw new FeedError(400, `${unknown} is an invalid param`);
  if (query.has('start') && query.has('end'))
    throw new FeedError(400, 'use either start or end parameter, not both');
  const number = (name: string, fallback: number): number => {
    const text = query.get(name);
    if (text === null) return fallback;
    const value = name === 'period' || name === 'searchWidth' ? seconds(text) : Number.parseInt(text, 10);
    if (!(value >= 0)) throw new FeedError(400, `${name} is not an uint`);
    return value;
  };
  const period = number('period', 86_400);
  const span = Math.max(1, number('span', 1));
  const origin = query.has('start') ? number('start', now) : number('end', now);
  const direction = query.has('start') ? 1 : -1;
  const total = requested.split(',').length * span;
  if (total > MAX_POINTS)
    throw new FeedError(400, `Requested ${total} data points exceeds the maximum of ${MAX_POINTS}.`);
  const times = Array.from({ length: span }, (_, i) => origin + direction * i * period);
  return { times, width: number('searchWidth', period / 10) };
}

/**
 * AVNU's token list, `GET /v1/starknet/tokens?page&size`, in the shape that its SDK reads (github.com/avnu-labs/avnu-sdk,
 * `src/types.ts`: `Page<Token>`; pages are counted from 0).
 */
function tokenList(query: URLSearchParams, { isListed = () => true }: FeedOptions): unknown {
  const page = Number(query.get('page') ?? 0);
  const size = Number(query.get('size') ?? 10);
  if (!Number.isInteger(page) || page < 0 || !Number.isInteger(size) || size < 1 || size > 100)
    throw new FeedError(400, 'page and size are integers, size from 1 to 100');
  const listed = coins.filter(({ token }) => isListed(token.address));
  return {
    content: listed.slice(page * size, (page + 1) * size).map(({ token, address, tags, walk }) => ({
      name: textOf(token.name),
      address,
      symbol: textOf(token.symbol),
      decimals: token.decimals,
      logoUri: tags.includes('Unknown') ? null : `https://logos.example/starknet/${token.key}.png`,
      lastDailyVolumeUsd: walk === null ? 0 : Number((walk.level * 1_234.5).toPrecision(8)),
      extensions: {},
      tags,
    })),
    totalPages: Math.ceil(listed.length / size),
    totalElements: listed.length,
    size,
    number: page,
  };
}

/** The answer for each known coin of a comma-separated list; null leaves a coin out. */
function answerFor(
  requested: string,
  { isListed = () => true }: FeedOptions,
  answer: (coin: Coin) => Record<string, unknown> | null,
): { coins: Record<string, unknown> } {
  const entries = requested.split(',').flatMap((key) => {
    const coin = byKey.get(key.toLowerCase());
    if (coin === undefined || coin.walk === null || !isListed(coin.token.address)) return [];
    const found = answer(coin);
    return found === null ? [] : [[key, found]];
  });
  return { coins: Object.fromEntries(entries) };
}

function describe({ token, confidence }: Coin): Record<string, unknown> {
  return { decimals: token.decimals, symbol: textOf(token.symbol).replaceAll('\0', ''), confidence };
}

/** In DefiLlama's order of the fields. */
function quote(coin: Coin, { price, timestamp }: Point): Record<string, unknown> {
  const { confidence, ...described } = describe(coin);
  return { ...described, price, timestamp, confidence };
}

/** The newest price at or before a time (Unix seconds). */
function pointBefore({ token, walk }: Coin, time: number, { seed, everySeconds }: FeedOptions): Point {
  // Prices of different tokens change at different times.
  const offset = 3 + (token.index % 7);
  const timestamp = Math.floor((time - offset) / everySeconds) * everySeconds + offset;
  return { timestamp, price: walk === null ? 0 : priceAt(seed, token.index, walk, timestamp) };
}

function textOf(answer: Coin['token']['name']): string {
  return answer.as === 'revert' ? '' : answer.bytes.toString('utf8');
}

/** Seconds of a duration such as `4h`, `1d` or `600`. */
function seconds(text: string): number {
  const [, count = '', unit = ''] = /^([0-9]*)([wdhm]?)$/i.exec(text) ?? [];
  const perUnit = { '': 1, m: 60, h: 3600, d: 86_400, w: 604_800 }[unit.toLowerCase()] ?? Number.NaN;
  return (count === '' ? (unit === '' ? Number.NaN : 1) : Number(count)) * perUnit;
}
