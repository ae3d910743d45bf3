import { Registry } from 'prom-client';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';

import { coins } from '../../../infra/embedded/prices/coins.ts';
import { createSimulatedFeed } from '../../support/simulated-feed.ts';
import type { SimulatedFeed } from '../../support/simulated-feed.ts';
import { systemClock } from '../../../infra/clock.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { createTextReader } from '../../../pipeline/observe/http.ts';
import { createDefiLlama } from '../../../pipeline/observe/prices/defillama.ts';
import type { PriceFeed } from '../../../pipeline/observe/prices/feed.ts';
import { runPriceObserver } from '../../../pipeline/observe/prices/observer.ts';
import {
  claimTokens,
  scheduleListed,
  scheduleRequested,
  setCommonTokens,
  settleClaims,
} from '../../../pipeline/observe/prices/store.ts';
import type { ObserverRun } from '../../../pipeline/observe/observer.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { pricesMessage } from '../../../schemas/messages/prices.ts';
import type { PricesMessage } from '../../../schemas/messages/prices.ts';
import { topics } from '../../../schemas/topics.ts';
import { observerWorld } from '../../support/observer-world.ts';
import type { ObserverWorld } from '../../support/observer-world.ts';
import { isConsumed, logOf } from '../../support/topic.ts';

const MINUTE = 60_000;
const POLL_MS = 2 * MINUTE;

let world: ObserverWorld;
let log: ObserverWorld['log'];
let pool: Pool;
let kafka: Kafka;
let feed: SimulatedFeed;
let adapter: PriceFeed;
let running: ObserverRun | null = null;
let metrics = new Registry();
let common: Felt[] = [];
/** The clock of observer and feed, which only the tests advance. */
let now = 1_790_000_000_000;

const addressOf = (key: string): Felt =>
  toFelt(coins.find(({ token }) => token.key === key)?.token.address ?? 0n);
const [eth, strk, usdc, wbtc] = ['eth', 'strk', 'usdc', 'wbtc'].map(addressOf) as [Felt, Felt, Felt, Felt];

beforeAll(async () => {
  world = await observerWorld();
  ({ pool, kafka, log } = world);
  feed = await createSimulatedFeed({ now: () => now });
  const reader = createTextReader({
    timeoutMs: 1000,
    maxAnswerBytes: 1_000_000,
    maxConcurrent: 2,
    maxAttempts: 1,
    clock: systemClock,
  });
  adapter = createDefiLlama(reader, feed.url);
});
afterEach(async () => {
  feed.faults.clear();
  await stop();
  common = [];
  await pool.query('TRUNCATE tds.price_watch; DELETE FROM tds.alarms');
  now += 60 * MINUTE;
});
afterAll(async () => {
  await adapter.close();
  await feed.close();
  await world.close();
});

async function start(of: PriceFeed = adapter): Promise<void> {
  metrics = new Registry();
  running = await runPriceObserver({
    config: {
      pricePollSeconds: POLL_MS / 1000,
      priceMaxAgeSeconds: 3600,
      priceJumpFactor: 2,
      priceConfirmations: 5,
    },
    feed: of,
    commonTokens: async () => common,
    pool,
    kafka,
    log,
    metrics,
    now: () => now,
    pollMs: 20,
  });
}

async function stop(): Promise<void> {
  await running?.stop();
  await running?.done;
  running = null;
}

/** The published messages of one token. */
async function messagesOf(token: Felt): Promise<PricesMessage[]> {
  const found: PricesMessage[] = [];
  for await (const { key, value } of logOf(kafka, topics.prices)) {
    const message = pricesMessage.parse(JSON.parse(value.toString()));
    expect(key).toBe(message.token);
    expect(message.source).toBe('defillama');
    if (message.token === token) found.push(message);
  }
  return found;
}

async function published(token: Felt): Promise<{ price: string; observedAt: number }[]> {
  return (await messagesOf(token)).flatMap((message) =>
    message.type === 'price.observed' ? [{ price: message.price, observedAt: message.observed_at }] : [],
  );
}

/** The answers to requests of a token: the time of the request, and `price` or the reason for none. */
async function answersFor(token: Felt): Promise<[requestedAt: number, outcome: string][]> {
  return (await messagesOf(token)).flatMap((message): [number, string][] =>
    message.requested_at === undefined
      ? []
      : [[message.requested_at, message.type === 'price.observed' ? 'price' : message.reason]],
  );
}

interface Watched {
  price: string | null;
  due_at: number | null;
  read_at: number | null;
  refusal: string | null;
}
async function watched(token: Felt): Promise<Watched | undefined> {
  const { rows } = await pool.query<Watched>('SELECT * FROM tds.price_watch WHERE token = $1', [token]);
  return rows[0];
}

/** Waits until the token has been read at the current time. */
async function untilRead(token: Felt): Promise<Watched> {
  return await vi.waitFor(
    async () => {
      const row = await watched(token);
      expect(row).toMatchObject({ read_at: now, claimed_until: 0 });
      return row as Watched;
    },
    { timeout: 30_000, interval: 20 },
  );
}

async function alarms(): Promise<string[]> {
  const { rows } = await pool.query<{ line: string }>(
    "SELECT name || ' ' || detail AS line FROM tds.alarms ORDER BY name",
  );
  return rows.map(({ line }) => line);
}

const eventually = <T>(look: () => Promise<T>): Promise<T> =>
  vi.waitFor(look, { timeout: 30_000, interval: 20 });

const request = (...tokens: Felt[]): Promise<void> => requestAs(undefined, ...tokens);
async function requestAs(caller: string | undefined, ...tokens: Felt[]): Promise<void> {
  const publisher = kafka.publisher();
  await publisher.publish(
    topics.requests,
    tokens.map((token) => ({
      key: token,
      value: { type: 'price.requested' as const, v: 1 as const, requested_at: now, token, caller },
    })),
  );
  await publisher.close();
}

async function list(...tokens: Felt[]): Promise<void> {
  const publisher = kafka.publisher();
  await publisher.publish(
    topics.tokens,
    tokens.map((token) => ({
      key: token,
      value: { type: 'token.listed' as const, v: 1 as const, token, verified: true, observed_at: now },
    })),
  );
  await publisher.close();
}

/** The current price of the feed, read without the observer. */
async function feedPrice(token: Felt): Promise<string> {
  const [reading] = await adapter.current([token]);
  return String(Number(reading?.price));
}

test('publishes each new price of common tokens once every two minutes, over a restart', async () => {
  common = [eth, usdc];
  const before = (await published(eth)).length;
  await start();
  for (let round = 0; round < 3; round += 1) {
    await untilRead(eth);
    await untilRead(usdc);
    expect(
      (await published(eth))
        .slice(before)
        .map(({ price }) => String(Number(price)))
        .at(-1),
    ).toBe(await feedPrice(eth));
    now += POLL_MS;
  }
  await untilRead(eth);
  await untilRead(usdc);
  // After one minute of two nothing is due.
  await stop();
  await start();
  now += MINUTE;
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect((await watched(eth))?.read_at).toBe(now - MINUTE);
  // The same record again is not published.
  feed.faults.add({ kind: 'stuck', tokens: [eth] });
  now += MINUTE;
  await untilRead(eth);
  const stuckAt = (await published(eth)).length;
  now += POLL_MS;
  await untilRead(eth);
  expect((await published(eth)).length).toBe(stuckAt);
  expect((await published(eth)).length - before).toBeGreaterThanOrEqual(4);
  const times = (await published(eth)).map(({ observedAt }) => observedAt);
  expect(new Set(times).size).toBe(times.length);
});

test('reads a requested token once for concurrent requests, and answers each of them', async () => {
  await start();
  const callsBefore = feed.calls.length;
  const before = (await published(strk)).length;
  await request(strk, strk, strk, strk);
  await untilRead(strk);
  const first = now;
  await eventually(async () => expect(await answersFor(strk)).toEqual([[first, 'price']]));
  // A request within the window is answered without another reading.
  now += 5000;
  await request(strk);
  await eventually(async () => expect((await answersFor(strk)).slice(1)).toEqual([[now, 'repeated']]));
  expect(feed.calls.length - callsBefore).toBe(1);
  expect(await watched(strk)).toMatchObject({ due_at: null, read_at: first });
  expect((await published(strk)).length).toBe(before + 1);

  // After the window it is read again; an unchanged or refused price is an answer as well.
  now += 6000;
  await request(strk);
  await untilRead(strk);
  await eventually(async () => expect((await answersFor(strk)).at(-1)?.[0]).toBe(now));
  expect(feed.calls.length - callsBefore).toBe(2);
  now += 5 * MINUTE;
  feed.faults.add({ kind: 'stuck', tokens: [strk] });
  await request(strk);
  await eventually(async () => expect((await answersFor(strk)).at(-1)).toEqual([now, 'price']));
  now += MINUTE;
  await request(strk);
  await eventually(async () => expect((await answersFor(strk)).at(-1)).toEqual([now, 'repeated']));
  now += MINUTE;
  feed.faults.add({ kind: 'garbage-price', tokens: [strk] });
  await request(strk);
  await eventually(async () => expect((await answersFor(strk)).at(-1)).toEqual([now, 'not_a_price']));
  const unknown = toFelt(0x7777n);
  await request(unknown);
  await eventually(async () => expect(await answersFor(unknown)).toEqual([[now, 'untracked']]));
});

test('answers a request during a reading with that reading', async () => {
  await start();
  const calls = feed.calls.length;
  feed.faults.add({ kind: 'latency', ms: 700 });
  await request(wbtc);
  await eventually(async () => expect(feed.calls.length).toBe(calls + 1));
  const [first, second] = [now, now + 100];
  now = second;
  await request(wbtc);
  await eventually(async () =>
    expect(await answersFor(wbtc)).toEqual([
      [first, 'price'],
      [second, 'repeated'],
    ]),
  );
  expect(feed.calls.length).toBe(calls + 1);
});

test('answers the request of one caller while a thousand of another wait', async () => {
  const calls: (readonly Felt[])[] = [];
  const isKnown = Promise.withResolvers<void>();
  await start({
    ...adapter,
    async current(tokens, signal) {
      calls.push(tokens);
      await isKnown.promise;
      return await adapter.current(tokens, signal);
    },
  });
  const many = Array.from({ length: 1000 }, (_, i) => toFelt(0xf100d_0000n + BigInt(i)));
  await requestAs('a', ...many);
  await eventually(async () => expect(calls).toHaveLength(1));
  now += 1;
  await requestAs('b', strk);
  try {
    await eventually(async () =>
      expect(await isConsumed(world, 'observe-prices', topics.requests)).toBe(true),
    );
  } finally {
    isKnown.resolve();
  }
  await eventually(async () => expect((await answersFor(strk)).at(-1)).toEqual([now, 'price']));
  // The thousand take 25 calls.
  expect(calls.findIndex((tokens) => tokens.includes(strk))).toBeLessThan(3);
});

test('reads a requested token while a full call of others waits for the backoff of another process', async () => {
  const waiting = Array.from({ length: adapter.tokensPerCall }, (_, i) => toFelt(0xbac0ffn + BigInt(i)));
  const requested = new Map(waiting.map((token) => [token, now]));
  await scheduleRequested(pool, requested, 0, now);
  const claims = await claimTokens(pool, waiting.length, now);
  const settlements = claims.map((claim) => ({ claim, verdict: null, dueAt: now + MINUTE }));
  await settleClaims(pool, settlements, now);
  await start();
  await request(strk);
  await untilRead(strk);
});

test('answers a request for a token it has just read, and makes others due, during a call of the feed', async () => {
  const answered = Promise.withResolvers<void>();
  let isCalled = false;
  await start({
    ...adapter,
    async current(tokens, signal) {
      isCalled ||= tokens.includes(wbtc);
      if (isCalled) await answered.promise;
      return await adapter.current(tokens, signal);
    },
  });
  await request(strk);
  await untilRead(strk);
  now += 1;
  await request(wbtc);
  await eventually(async () => expect(isCalled).toBe(true));
  try {
    await request(strk, usdc);
    await eventually(async () => expect((await answersFor(strk)).at(-1)).toEqual([now, 'repeated']));
    await eventually(async () => expect(await watched(usdc)).toMatchObject({ due_at: now }));
  } finally {
    answered.resolve();
  }
  await untilRead(usdc);
});

test('claims a due common token among a thousand requested ones, and the reverse', async () => {
  const tokens = (begin: bigint): Felt[] =>
    Array.from({ length: 1000 }, (_, i) => toFelt(begin + BigInt(i) * 0x10000n));
  const claimed = async (): Promise<Felt[]> =>
    (await claimTokens(pool, 40, now + 1)).map(({ token }) => token);
  const requested = tokens(0x1234n);
  const schedule = async (found: readonly Felt[], at: number): Promise<void> => {
    await scheduleRequested(pool, new Map(found.map((token) => [token, at])), 0, at);
  };
  await schedule(requested, now);
  await setCommonTokens(pool, [eth], now + 1, 60 * MINUTE);
  const first = await claimed();
  expect(first).toContain(eth);
  expect(first).toHaveLength(40);

  await pool.query('TRUNCATE tds.price_watch');
  await setCommonTokens(pool, tokens(0x4321n), now, 60 * MINUTE);
  await schedule([strk], now + 1);
  const second = await claimed();
  expect(second).toContain(strk);
  expect(second).toHaveLength(40);
});

test('ignores requests that expired before the observer started', async () => {
  const expired = addressOf('keyed');
  await request(expired);
  now += 10 * MINUTE;
  await start();
  await request(usdc);
  await untilRead(usdc);
  expect(await watched(expired)).toBeUndefined();
});

test('reads a listed token once, and publishes nothing for one unknown to the feed', async () => {
  const unknown = toFelt(0xabcdefn);
  await start();
  await list(wbtc, unknown);
  await untilRead(wbtc);
  await untilRead(unknown);
  expect((await published(wbtc)).map(({ price }) => String(Number(price))).at(-1)).toBe(
    await feedPrice(wbtc),
  );
  expect(await published(unknown)).toEqual([]);
  expect(await watched(unknown)).toMatchObject({ refusal: 'untracked', due_at: null });
  expect(await alarms()).toEqual([]);
  await eventually(async () =>
    expect(await metrics.metrics()).toContain('tds_prices_refused_total{reason="untracked"} 1'),
  );
});

test('reads a listed token again that had no price when a client requested it, and none that has one', async () => {
  await start();
  feed.faults.add({ kind: 'missing', tokens: [wbtc] });
  await request(wbtc, usdc);
  await untilRead(wbtc);
  const { read_at: readAt } = await untilRead(usdc);
  expect(await watched(wbtc)).toMatchObject({ refusal: 'untracked', price: null });
  feed.faults.clear();
  now += MINUTE;
  await list(usdc, wbtc);
  expect((await untilRead(wbtc)).price).not.toBeNull();
  expect(await watched(usdc)).toMatchObject({ read_at: readAt });
});

test.each([
  ['garbage-price', {}, 'not_a_price'],
  ['garbage-price', { value: '3150.2' }, 'not_a_price'],
  ['garbage-price', { value: -3150.2 }, 'not_a_price'],
  ['garbage-price', { value: 0 }, 'not_a_price'],
  ['garbage-price', { value: null }, 'not_a_price'],
  ['garbage-price', { value: { usd: 1 } }, 'not_a_price'],
  ['other-address', {}, 'other_address'],
  ['factor', {}, 'jump'],
  ['factor', { factor: 0.001 }, 'jump'],
  ['stale', {}, 'too_old'],
  ['low-confidence', {}, 'low_confidence'],
] as const)(
  'publishes nothing on %s %j, raises the alarm %s, and clears it afterwards',
  async (kind, more, reason) => {
    common = [eth, usdc];
    await start();
    await untilRead(eth);
    await untilRead(usdc);
    const before = await published(eth);
    const others = (await published(usdc)).length;

    feed.faults.add({ kind, ...more, tokens: [eth] });
    for (let round = 1; round <= 3; round += 1) {
      now += POLL_MS;
      expect((await untilRead(eth)).refusal).toBe(reason);
      await untilRead(usdc);
    }
    expect(await published(eth)).toEqual(before);
    // Other tokens are not affected.
    expect((await published(usdc)).length).toBe(others + 3);
    expect(await alarms()).toEqual([expect.stringMatching(`^prices.refused:${eth} ${reason}: `)]);
    await eventually(async () =>
      expect(await metrics.metrics()).toContain(`tds_prices_refused_total{reason="${reason}"} 3`),
    );

    feed.faults.clear();
    now += POLL_MS;
    expect((await untilRead(eth)).refusal).toBeNull();
    expect((await published(eth)).slice(before.length).map(({ price }) => String(Number(price)))).toEqual([
      await feedPrice(eth),
    ]);
    await eventually(async () => expect(await alarms()).toEqual([]));
  },
);

test('publishes a lasting jump at its fifth confirmation, over a restart', async () => {
  common = [wbtc];
  await start();
  await untilRead(wbtc);
  const before = (await published(wbtc)).length;
  feed.faults.add({ kind: 'factor', factor: 4, tokens: [wbtc] });
  // The first reading of the new price, and four that confirm it.
  for (let round = 0; round < 5; round += 1) {
    now += POLL_MS;
    expect((await untilRead(wbtc)).refusal).toBe('jump');
    if (round === 2) {
      await stop();
      await start();
    }
  }
  expect((await published(wbtc)).length).toBe(before);
  expect(await alarms()).toEqual([expect.stringContaining('4 of 5 confirmations')]);
  now += POLL_MS;
  await untilRead(wbtc);
  expect((await published(wbtc)).slice(before).map(({ price }) => Number(price))).toEqual([
    Number(await feedPrice(wbtc)),
  ]);
  await eventually(async () => expect(await alarms()).toEqual([]));
});

test('reads a token that is not common again until its jump is confirmed', async () => {
  await start();
  await request(strk);
  await untilRead(strk);
  const before = (await published(strk)).length;
  feed.faults.add({ kind: 'factor', factor: 0.1, tokens: [strk] });
  now += POLL_MS;
  await request(strk);
  await eventually(async () => expect((await answersFor(strk)).at(-1)).toEqual([now, 'jump']));
  for (let confirmations = 1; confirmations < 5; confirmations += 1) {
    now += POLL_MS;
    expect((await untilRead(strk)).refusal).toBe('jump');
  }
  expect((await published(strk)).length).toBe(before);
  now += POLL_MS;
  expect(await untilRead(strk)).toMatchObject({ refusal: null, due_at: null });
  expect((await published(strk)).length).toBe(before + 1);
});

test('publishes a price within the bound at once after a gap of two days, and a jump after its confirmations', async () => {
  common = [eth, usdc];
  await start();
  await untilRead(eth);
  await untilRead(usdc);
  const before = { eth: (await published(eth)).length, usdc: (await published(usdc)).length };
  feed.faults.add({ kind: 'http500' });
  now += POLL_MS;
  await eventually(async () => expect(await alarms()).toEqual(['prices.feed unavailable: HTTP 500']));
  feed.faults.clear();
  feed.faults.add({ kind: 'factor', factor: 0.2, tokens: [eth] });
  now += 48 * 60 * MINUTE;
  expect((await untilRead(usdc)).refusal).toBeNull();
  expect((await untilRead(eth)).refusal).toBe('jump');
  expect((await published(usdc)).length).toBe(before.usdc + 1);
  for (let confirmations = 1; confirmations <= 5; confirmations += 1) {
    expect((await published(eth)).length).toBe(before.eth);
    now += POLL_MS;
    await untilRead(eth);
  }
  expect((await published(eth)).length).toBe(before.eth + 1);
});

test.each([
  ['http500', {}, 'HTTP 500'],
  ['http429', { retryAfter: 1800 }, 'HTTP 429'],
  ['hang', {}, 'no answer within 1000 ms'],
  ['not-json', {}, 'the price feed answered invalid JSON'],
  ['truncated', {}, 'the price feed answered invalid JSON'],
] as const)('raises an alarm on %s %j with %s, and recovers by itself', async (kind, more, detail) => {
  common = [eth];
  await start();
  await untilRead(eth);
  const before = (await published(eth)).length;
  feed.faults.add({ kind, ...more });
  const calls = feed.calls.length;
  now += POLL_MS;
  await eventually(async () => expect(await alarms()).toEqual([`prices.feed unavailable: ${detail}`]));
  expect((await published(eth)).length).toBe(before);
  feed.faults.clear();
  if (kind === 'http429') {
    // The feed asked for half an hour without calls; requests wait as well.
    now += 29 * MINUTE;
    await request(eth, strk);
    await eventually(async () => expect(await watched(strk)).toBeDefined());
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(feed.calls.length - calls).toBe(1);
  }
  now += 5 * MINUTE;
  await untilRead(eth);
  expect((await published(eth)).length).toBe(before + 1);
  await eventually(async () => expect(await alarms()).toEqual([]));
});

test('publishes each price once with two processes', async () => {
  common = coins
    .filter(({ walk, confidence }) => walk !== null && confidence > 0.8)
    .map(({ token }) => toFelt(token.address));
  const before = (await published(eth)).length;
  await start();
  const first = running;
  await start();
  for (let round = 0; round < 5; round += 1) {
    for (const token of common) await untilRead(token);
    now += POLL_MS;
  }
  for (const token of common) await untilRead(token);
  await first?.stop();
  for (const token of common) {
    const times = (await published(token)).map(({ observedAt }) => observedAt);
    expect(new Set(times).size).toBe(times.length);
  }
  expect((await published(eth)).length).toBe(before + 6);
});

test('stops reading a token that is no longer common, and clears its alarm', async () => {
  common = [eth, usdc];
  feed.faults.add({ kind: 'stale', tokens: [eth] });
  await start();
  await untilRead(eth);
  await eventually(async () => expect(await alarms()).toHaveLength(1));
  common = [usdc];
  now += 30_000;
  await eventually(async () => expect(await alarms()).toEqual([]));
  expect(await watched(eth)).toMatchObject({ due_at: null });
});

test('reads a token periodically that became common during a reading of another process', async () => {
  await scheduleListed(pool, [eth], now);
  const [claim] = await claimTokens(pool, 10, now);
  if (claim === undefined) throw new Error('the token is not due');
  await setCommonTokens(pool, [eth], now, 60 * MINUTE);
  // The claim is kept.
  expect(await claimTokens(pool, 10, now)).toEqual([]);
  await settleClaims(pool, [{ claim, verdict: { kind: 'unchanged' }, dueAt: null }], now);
  now += 10_000;
  await setCommonTokens(pool, [eth], now, 60 * MINUTE);
  expect(await claimTokens(pool, 10, now)).toMatchObject([{ token: eth, common: true }]);
});

test('reads a requested token once more when it is no longer common', async () => {
  await setCommonTokens(pool, [eth, usdc], now, 60 * MINUTE);
  await scheduleRequested(pool, new Map([[eth, now]]), 0, now);
  await setCommonTokens(pool, [], now, 60 * MINUTE);
  const claims = await claimTokens(pool, 10, now);
  expect(claims).toMatchObject([{ token: eth, common: false, requestedAt: now }]);
  await settleClaims(
    pool,
    claims.map((claim) => ({ claim, verdict: { kind: 'unchanged' }, dueAt: null })),
    now,
  );
  expect(await watched(eth)).toMatchObject({ due_at: null, asked_at: null });
});

test('forgets a token that was common but never read', async () => {
  // A token that moved between two pages of the list is read twice.
  await setCommonTokens(pool, [eth, usdc, eth], now, 60 * MINUTE);
  await setCommonTokens(pool, [usdc], now, 60 * MINUTE);
  expect(await watched(eth)).toBeUndefined();
  expect(await watched(usdc)).toBeDefined();
});

test('reads prices at once when the clock was set back, also during the backoff of the feed', async () => {
  const readAll = async (): Promise<void> => {
    await request(strk);
    await untilRead(eth);
    await untilRead(strk);
  };
  common = [eth];
  const before = now;
  now += 24 * 60 * MINUTE;
  await start();
  await readAll();
  now += POLL_MS;
  feed.faults.add({ kind: 'http500' });
  await eventually(async () => expect(await alarms()).toEqual(['prices.feed unavailable: HTTP 500']));
  feed.faults.clear();
  common = [eth, usdc];
  now = before;
  await readAll();
  await untilRead(usdc);
});
