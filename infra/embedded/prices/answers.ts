import { coins } from './coins.ts';
import type { Coin } from './coins.ts';
import { struckToken } from './faults.ts';
import type { Struck } from './faults.ts';
import { priceAt } from './walk.ts';

/** One call of the feed, as its answers need it. */
export interface Wanted {
  readonly seed: string;
  /** Unix milliseconds. */
  readonly now: number;
  /** A new price comes so often. */
  readonly everySeconds: number;
  readonly strikes: readonly Struck[];
  readonly query: URLSearchParams;
}

/** What the interface answers with another status than 200. */
export class WireError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** As the real interface, it does not look further than this. */
const CURRENT_WIDTH_S = 12 * 3600;
const HISTORICAL_WIDTH_S = 6 * 3600;
const MOST_POINTS = 500;
/** Nothing was traded before. */
const BEGINNING_S = Date.UTC(2021, 10, 16) / 1000;

const DAY_MS = 86_400_000;
/** As the lists it was made from write them; a coin in another spelling is another coin, and unknown. */
const byKey: ReadonlyMap<string, Coin> = new Map(coins.map((coin) => [`starknet:${coin.address}`, coin]));

interface Point {
  readonly timestamp: number;
  readonly price: unknown;
}

export function currentAnswer(asked: string, wanted: Wanted): { coins: Record<string, unknown> } {
  return {
    coins: Object.fromEntries(
      known(asked, wanted).flatMap(({ key, coin }) => {
        const stale = struckToken(wanted.strikes, 'stale', coin.token.address);
        const stuck = struckToken(wanted.strikes, 'stuck', coin.token.address);
        const at = stuck?.setAt ?? wanted.now - (stale === undefined ? 0 : (stale.fault.ms ?? 2 * DAY_MS));
        const point = pointBefore(coin, Math.floor(at / 1000), wanted);
        const isThere = point.timestamp * 1000 > wanted.now - CURRENT_WIDTH_S * 1000 || stale !== undefined;
        return isThere ? [entry(key, coin, point, wanted)] : [];
      }),
    ),
  };
}

export function historicalAnswer(
  time: string,
  asked: string,
  wanted: Wanted,
): { coins: Record<string, unknown> } {
  const at = Number(time);
  if (!Number.isInteger(at) || at < 0) throw new WireError(400, 'timestamp is not an uint');
  return {
    coins: Object.fromEntries(
      known(asked, wanted).flatMap(({ key, coin }) => {
        const point = pointBefore(coin, Math.min(at, Math.floor(wanted.now / 1000)), wanted);
        const isNear = point.timestamp >= BEGINNING_S && at - point.timestamp < HISTORICAL_WIDTH_S;
        return isNear ? [entry(key, coin, point, wanted)] : [];
      }),
    ),
  };
}

export function chartAnswer(asked: string, wanted: Wanted): { coins: Record<string, unknown> } {
  const { query } = wanted;
  const unknown = [...query.keys()].find(
    (name) => !['start', 'end', 'span', 'period', 'searchWidth'].includes(name),
  );
  if (unknown !== undefined) throw new WireError(400, `${unknown} is an invalid param`);
  if (query.has('start') && query.has('end'))
    throw new WireError(400, 'use either start or end parameter, not both');
  const number = (name: string, fallback: number): number => {
    const text = query.get(name);
    if (text === null) return fallback;
    const value = name === 'period' || name === 'searchWidth' ? seconds(text) : Number.parseInt(text, 10);
    if (!(value >= 0)) throw new WireError(400, `${name} is not an uint`);
    return value;
  };
  const nowS = Math.floor(wanted.now / 1000);
  const period = number('period', 86_400);
  const width = number('searchWidth', period / 10);
  const span = Math.max(1, number('span', 1));
  const origin = query.has('start') ? number('start', nowS) : number('end', nowS);
  const direction = query.has('start') ? 1 : -1;
  const total = asked.split(',').length * span;
  if (total > MOST_POINTS)
    throw new WireError(400, `Requested ${total} data points exceeds the maximum of ${MOST_POINTS}.`);
  const times = Array.from({ length: span }, (_, i) => origin + direction * i * period);
  return {
    coins: Object.fromEntries(
      known(asked, wanted).flatMap(({ key, coin }) => {
        const points = times
          .map((time) => pointBefore(coin, Math.min(time, nowS), wanted))
          .filter(({ timestamp }, i) => {
            const time = times[i] ?? 0;
            return timestamp >= BEGINNING_S && Math.abs(time - timestamp) <= width;
          });
        const unique = [...new Map(points.map((point) => [point.timestamp, point])).values()];
        if (unique.length === 0) return [];
        const prices = unique.toSorted((a, b) => a.timestamp - b.timestamp);
        const { decimals } = coin.token;
        return [[key, { symbol: symbolOf(coin), confidence: confidenceOf(coin, wanted), decimals, prices }]];
      }),
    ),
  };
}

/** The coins of a comma-separated list that the feed knows, under the keys it answers with. */
function known(asked: string, { strikes }: Wanted): { key: string; coin: Coin }[] {
  return asked.split(',').flatMap((key) => {
    const coin = byKey.get(key.toLowerCase());
    if (coin === undefined || coin.walk === null) return [];
    if (struckToken(strikes, 'missing', coin.token.address) !== undefined) return [];
    const isMoved = struckToken(strikes, 'other-address', coin.token.address) !== undefined;
    return [
      {
        key: isMoved ? 'starknet:0x0bad00000000000000000000000000000000000000000000000000000000bad' : key,
        coin,
      },
    ];
  });
}

function entry(key: string, coin: Coin, { timestamp, price }: Point, wanted: Wanted): [string, unknown] {
  const { decimals } = coin.token;
  return [
    key,
    { decimals, symbol: symbolOf(coin), price, timestamp, confidence: confidenceOf(coin, wanted) },
  ];
}

/** The newest price at or before a time, with whatever goes wrong with it. */
function pointBefore(coin: Coin, time: number, { seed, strikes, everySeconds }: Wanted): Point {
  const { token, walk } = coin;
  // Not all at once.
  const offset = 3 + (token.index % 7);
  const timestamp = Math.floor((time - offset) / everySeconds) * everySeconds + offset;
  const price = walk === null ? 0 : priceAt(seed, token.index, walk, timestamp);
  const garbage = struckToken(strikes, 'garbage-price', token.address);
  if (garbage !== undefined) return { timestamp, price: garbage.fault.value ?? 'about a dollar' };
  const jump = struckToken(strikes, 'factor', token.address);
  return { timestamp, price: jump === undefined ? price : price * (jump.fault.factor ?? 1000) };
}

function confidenceOf({ token, confidence }: Coin, { strikes }: Wanted): number {
  return struckToken(strikes, 'low-confidence', token.address) === undefined ? confidence : 0.1;
}

function symbolOf({ token }: Coin): string {
  return token.symbol.as === 'revert' ? '' : token.symbol.bytes.toString('utf8').replaceAll('\0', '');
}

/** `4h`, `1d`, `600`: a unit, or seconds. */
function seconds(text: string): number {
  const [, count = '', unit = ''] = /^([0-9]*)([wdhm]?)$/i.exec(text) ?? [];
  const perUnit = { '': 1, m: 60, h: 3600, d: 86_400, w: 604_800 }[unit.toLowerCase()] ?? Number.NaN;
  return (count === '' ? (unit === '' ? Number.NaN : 1) : Number(count)) * perUnit;
}
