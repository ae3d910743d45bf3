import { z } from 'zod';

import { parseFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { invalidFeedAnswer } from '../http.ts';
import type { TextReader } from '../http.ts';
import { JsonNumber, parseJsonExactly } from './decimal.ts';
import type { FeedReading, PriceFeed } from './feed.ts';

/**
 * Client of DefiLlama's keyless coins API, as in its source (github.com/DefiLlama/defillama-server,
 * `coins/src/getCurrentCoins.ts` and the handler of `/chart`):
 *
 * - `GET /prices/current/{chain}:{address},…` → `{coins: {"chain:address": {decimals, symbol, price, timestamp,
 *   confidence}}}`; `decimals` and `confidence` are optional; unknown coins are missing.
 * - `GET /chart/{coins}?start|end&span&period&searchWidth` → `{coins: {"chain:address": {symbol, decimals, confidence,
 *   prices: [{timestamp, price}]}}}`; either start or end; at most 500 points over all requested coins.
 *
 * Times are unix seconds, as are `period` and `searchWidth` without a unit. The API matches keys as text, and
 * Starknet addresses occur in it with and without leading zeros (`coins/src/adapters/bridges/anvu.ts`), so each token is
 * requested in both forms.
 */
const SOURCE = 'defillama';
const CHAIN = 'starknet';

/** Two forms of 75 characters each make a URL of some 6 kB, which proxies accept. */
const TOKENS_PER_CALL = 40;
/** The API's 500 are shared by the two forms. */
const POINTS_PER_CALL = 250;

const coinsAnswer = z.object({ coins: z.record(z.string(), z.unknown()) });
const coin = z.object({ price: z.unknown(), timestamp: z.unknown(), confidence: z.unknown() }).partial();
const chart = z.object({
  confidence: z.unknown().optional(),
  prices: z.array(z.object({ price: z.unknown(), timestamp: z.unknown() }).partial()).max(500),
});

/** @param baseUrl such as https://coins.llama.fi */
export function createDefiLlama(reader: TextReader, baseUrl: string): PriceFeed {
  const base = baseUrl.replace(/\/+$/, '');

  const coins = async (path: string, signal: AbortSignal | undefined): Promise<[string, unknown][]> => {
    const text = await reader.get(base + path, signal);
    let json: unknown;
    try {
      json = parseJsonExactly(text);
    } catch (cause) {
      throw invalidFeedAnswer('the price feed answered invalid JSON', cause);
    }
    const answer = coinsAnswer.safeParse(json);
    if (!answer.success) throw invalidFeedAnswer('the answer of the price feed has no `coins`', answer.error);
    return Object.entries(answer.data.coins);
  };

  return {
    source: SOURCE,
    tokensPerCall: TOKENS_PER_CALL,
    pointsPerCall: POINTS_PER_CALL,
    async current(tokens, signal) {
      const found = await coins(`/prices/current/${keysOf(tokens)}`, signal);
      return found.map(([key, value]) => {
        const { data = {} } = coin.safeParse(value);
        return reading(key, data.price, data.timestamp, data.confidence);
      });
    },
    async history(token, { from, to, stepMs }, signal) {
      const step = Math.round(stepMs / 1000);
      const span = Math.floor((to - from) / stepMs) + 1;
      const query = `start=${Math.ceil(from / 1000)}&span=${span}&period=${step}&searchWidth=${Math.floor(step / 2)}`;
      const found = await coins(`/chart/${keysOf([token])}?${query}`, signal);
      return found.flatMap(([key, value]) => {
        const parsed = chart.safeParse(value);
        if (!parsed.success)
          throw invalidFeedAnswer('the answer of the price feed has an invalid chart', parsed.error);
        const { prices, confidence } = parsed.data;
        return prices.map(({ price, timestamp }) => reading(key, price, timestamp, confidence));
      });
    },
    close: () => reader.close(),
  };
}

function keysOf(tokens: readonly Felt[]): string {
  return tokens
    .flatMap((token) => [`${CHAIN}:${token}`, `${CHAIN}:${token.replace(/^0x0+(?=.)/, '0x')}`])
    .join(',');
}

function reading(key: string, price: unknown, timestamp: unknown, confidence: unknown): FeedReading {
  const [chain, address, ...more] = key.split(':');
  const isOurs = chain === CHAIN && address !== undefined && more.length === 0;
  return {
    token: isOurs ? parseFelt(address) : null,
    price: textOf(price),
    confidence: textOf(confidence),
    observedAt: millisOf(timestamp),
  };
}

function textOf(value: unknown): string | null {
  return value instanceof JsonNumber ? value.text : null;
}

/** Converts seconds to milliseconds; null outside the range of a Date. */
function millisOf(value: unknown): number | null {
  const seconds = Number(textOf(value) ?? Number.NaN);
  return Number.isSafeInteger(seconds) && seconds > 0 && seconds < 8.64e12 ? seconds * 1000 : null;
}
