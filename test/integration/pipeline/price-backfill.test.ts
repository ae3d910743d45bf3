import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';

import { coins } from '../../../infra/embedded/prices/coins.ts';
import { createSimulatedFeed } from '../../support/simulated-feed.ts';
import type { SimulatedFeed } from '../../support/simulated-feed.ts';
import { systemClock } from '../../../infra/clock.ts';
import type { Kafka, Publisher } from '../../../infra/kafka/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { createTextReader } from '../../../pipeline/observe/http.ts';
import { backfillPrices } from '../../../pipeline/observe/prices/backfill.ts';
import type { BackfillOptions, BackfillReport } from '../../../pipeline/observe/prices/backfill.ts';
import { createDefiLlama } from '../../../pipeline/observe/prices/defillama.ts';
import type { FeedReading, PriceFeed } from '../../../pipeline/observe/prices/feed.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { observerWorld } from '../../support/observer-world.ts';
import type { ObserverWorld } from '../../support/observer-world.ts';
import { messagesOf } from '../../support/topic.ts';

const HOUR = 3_600_000;
const NOW = Date.UTC(2026, 9, 1, 12, 34);
let world: ObserverWorld;
let log: ObserverWorld['log'];
let pool: Pool;
let kafka: Kafka;
let publisher: Publisher;
let feed: SimulatedFeed;
let adapter: PriceFeed;
const slept: number[] = [];

beforeAll(async () => {
  world = await observerWorld();
  ({ pool, kafka, log } = world);
  publisher = kafka.publisher();
  feed = await createSimulatedFeed({ now: () => NOW });
  adapter = createDefiLlama(
    createTextReader({
      timeoutMs: 2000,
      maxAnswerBytes: 1_000_000,
      maxConcurrent: 1,
      maxAttempts: 1,
      clock: systemClock,
    }),
    feed.url,
  );
});
afterEach(() => {
  feed.faults.clear();
  slept.length = 0;
});
afterAll(async () => {
  await adapter.close();
  await feed.close();
  await publisher.close();
  await world.close();
});

const addressOf = (key: string): Felt =>
  toFelt(coins.find(({ token }) => token.key === key)?.token.address ?? 0n);

async function backfill(
  options: Pick<BackfillOptions, 'tokens' | 'from'> & Partial<BackfillOptions>,
): Promise<BackfillReport> {
  return await backfillPrices({
    feed: adapter,
    pool,
    publisher,
    limits: { maxAgeMs: HOUR, jumpFactor: 2, confirmations: 2 },
    to: NOW,
    stepMs: HOUR,
    log,
    signal: new AbortController().signal,
    // Of a machine that was suspended for two hours.
    clock: {
      ...systemClock,
      now: () => NOW - 2 * HOUR,
      wallTime: () => NOW,
      sleep: async (ms) => void slept.push(ms),
    },
    onProgress: () => {},
    ...options,
  });
}

/** The published prices of a token, as `time price`; all are past ones. */
async function published(token: Felt): Promise<string[]> {
  const found: string[] = [];
  for (const message of await messagesOf(kafka, topics.prices))
    if (message.token === token && message.type === 'price.observed') {
      expect(message.cause).toBe('backfill');
      found.push(`${message.observed_at} ${message.price}`);
    }
  return found;
}

test('publishes the price of every hour, over a kill, and requests no whole window twice', async () => {
  const tokens = [addressOf('eth'), addressOf('usdc'), toFelt(0xabcdefn)];
  const from = NOW - 60 * 24 * HOUR;
  const calls = feed.calls.length;
  const killed = new AbortController();
  const dying = backfill({
    tokens,
    from,
    signal: killed.signal,
    onProgress: ({ done }) => {
      if (done === 5) killed.abort(new Error('killed'));
    },
  });
  await expect(dying).rejects.toThrow('killed');
  const report = await backfill({ tokens, from });
  // The first and the last window of each token are partial, and are requested again.
  expect(report.skipped).toBeGreaterThanOrEqual(4);
  expect(feed.calls.length - calls).toBe(5 + report.total - report.skipped);
  expect(report.refused).toEqual({});

  const [eth, , unknown] = tokens as [Felt, Felt, Felt];
  const hours = new Set(await published(eth));
  expect(hours.size).toBe(60 * 24);
  for (const ago of [0, 1, 17, 1000, 60 * 24 - 1]) {
    const hour = Math.floor(NOW / HOUR) * HOUR - ago * HOUR;
    feed.setClock(() => hour);
    const [then] = await adapter.current([eth]);
    feed.setClock(() => NOW);
    expect(hours).toContain(`${then?.observedAt} ${Number(then?.price)}`);
  }
  expect(await published(unknown)).toEqual([]);

  const before = (await published(eth)).length;
  const again = await backfill({ tokens, from: from + 20 * 24 * HOUR, to: NOW - 20 * 24 * HOUR });
  expect(again.published).toBe(0);
  expect((await published(eth)).length).toBe(before);
});

test('requests a window again that had no price', async () => {
  const tokens = [addressOf('strk')];
  const from = NOW - 40 * 24 * HOUR;
  feed.faults.add({ kind: 'missing', tokens });
  expect(await backfill({ tokens, from })).toMatchObject({ published: 0, skipped: 0 });
  feed.faults.clear();
  expect(await backfill({ tokens, from })).toMatchObject({ published: 40 * 24, skipped: 0 });
  const again = await backfill({ tokens, from });
  // The first and the last window are partial.
  expect(again.skipped).toBe(again.total - 2);
});

test('checks the first price against the last one recorded, also across a window without prices', async () => {
  const token = toFelt(0x79n);
  const windowMs = 10 * HOUR;
  const start = Math.floor(NOW / windowMs) * windowMs - 10 * windowMs;
  const readings = (from: number, prices: readonly string[]): FeedReading[] =>
    prices.map((price, i) => ({ token, price, confidence: '0.99', observedAt: from + i * HOUR }));
  const points = [
    ...readings(start - windowMs, ['1']),
    ...readings(start, ['99', '100']),
    ...readings(start + 2 * windowMs, ['100000', '101']),
  ];
  const scripted: PriceFeed = {
    source: 'scripted',
    tokensPerCall: 1,
    pointsPerCall: 10,
    current: async () => [],
    history: async (_, { from, to }) =>
      points.filter(({ observedAt }) => observedAt !== null && observedAt >= from && observedAt <= to),
    close: async () => {},
  };
  const window = async (at: number): Promise<BackfillReport> => {
    const from = start + at * windowMs;
    return await backfill({ feed: scripted, tokens: [token], from, to: from + windowMs - HOUR });
  };
  for (const at of [0, -1, 1]) await window(at);
  expect(await window(2)).toMatchObject({ published: 1, refused: { jump: 1 } });
  expect((await published(token)).at(-1)).toBe(`${start + 2 * windowMs + HOUR} 101`);
});

test('requests nothing where no hour begins between the first time and the last', async () => {
  const calls = feed.calls.length;
  const report = await backfill({ tokens: [addressOf('eth')], from: NOW - HOUR / 3 });
  expect(report).toMatchObject({ total: 0, published: 0 });
  expect(feed.calls.length).toBe(calls);
});

test('waits for Retry-After, and fails when the feed stays unavailable', async () => {
  const tokens = [addressOf('wbtc')];
  feed.faults.add({ kind: 'http429', retryAfter: 90, times: 1 });
  const report = await backfill({ tokens, from: NOW - 10 * HOUR });
  expect(report.published).toBe(10);
  expect(slept).toEqual([90_000]);
  feed.faults.add({ kind: 'http500' });
  await expect(backfill({ tokens, from: NOW - 10 * HOUR })).rejects.toMatchObject({
    code: 'FEED_UNREACHABLE',
    message: 'HTTP 500',
  });
  expect(await published(addressOf('wbtc'))).toHaveLength(10);
});

test('leaves refused points out of the history', async () => {
  const token = toFelt(0x77n);
  const hour = (at: number): number => Math.floor(NOW / HOUR) * HOUR - (100 - at) * HOUR;
  const point = (at: number, more: Partial<FeedReading> = {}): FeedReading => ({
    token,
    price: `100.${at}1`,
    confidence: '0.99',
    observedAt: hour(at),
    ...more,
  });
  const points = [
    ...[1, 2, 3].map((at) => point(at)),
    point(4, { price: '100000' }), // a factor of 1,000 for an hour
    point(5),
    point(6, { token: toFelt(0x78n) }),
    point(7, { price: null }),
    point(8, { price: '-1' }),
    point(9, { confidence: '0.3' }),
    point(10, { observedAt: null }),
    point(11),
    point(3), // late and repeated
    point(17, { observedAt: NOW + 365 * 24 * HOUR }),
    ...[12, 13, 14, 15, 16].map((at) => point(at, { price: '400' })), // a lasting factor of 4
  ];
  const scripted: PriceFeed = {
    source: 'scripted',
    tokensPerCall: 1,
    pointsPerCall: 1000,
    current: async () => [],
    history: async () => points,
    close: async () => {},
  };
  const report = await backfill({ feed: scripted, tokens: [token], from: hour(0) });
  const prices = (await published(token)).map((line) => line.split(' '));
  expect(prices.map(([, price]) => price)).toEqual([
    '100.11',
    '100.21',
    '100.31',
    '100.51',
    '100.111',
    '400',
    '400',
    '400',
  ]);
  expect(prices.at(-3)?.[0]).toBe(String(hour(14)));
  expect(report.refused).toEqual({
    jump: 3,
    other_address: 1,
    not_a_price: 3,
    low_confidence: 1,
    from_the_future: 1,
  });
});
