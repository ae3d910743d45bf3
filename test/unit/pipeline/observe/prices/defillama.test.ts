import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';

import { coins } from '../../../../../infra/embedded/prices/coins.ts';
import { createSimulatedFeed } from '../../../../support/simulated-feed.ts';
import type { SimulatedFeed } from '../../../../support/simulated-feed.ts';
import type { FeedFault } from '../../../../support/simulated-feed.ts';
import { createTextReader } from '../../../../../pipeline/observe/http.ts';
import { createDefiLlama } from '../../../../../pipeline/observe/prices/defillama.ts';
import type { PriceFeed } from '../../../../../pipeline/observe/prices/feed.ts';
import { toFelt } from '../../../../../schemas/felt.ts';
import type { Felt } from '../../../../../schemas/felt.ts';

const NOW = 1_790_000_000_000;
const MINUTE = 60_000;
let feed: SimulatedFeed;
let adapter: PriceFeed;
const slept: number[] = [];

beforeAll(async () => {
  feed = await createSimulatedFeed({ now: () => NOW });
  const reader = createTextReader({
    timeoutMs: 500,
    maxAnswerBytes: 100_000,
    maxConcurrent: 2,
    clock: {
      now: () => NOW,
      wallTime: () => NOW,
      sleep: async (ms) => void slept.push(ms),
      turn: async () => {},
      random: () => 0.5,
    },
  });
  adapter = createDefiLlama(reader, `${feed.url}/`);
});
afterEach(() => {
  feed.faults.clear();
  slept.length = 0;
});
afterAll(async () => {
  await adapter.close();
  await feed.close();
});

const addressOf = (key: string): Felt =>
  toFelt(coins.find(({ token }) => token.key === key)?.token.address ?? 0n);
const unknown = toFelt(0xabcn);

describe('createDefiLlama', () => {
  it('reads every coin of the feed, with padded and unpadded addresses, and skips unknown ones', async () => {
    const priced = coins.filter(({ walk }) => walk !== null).map(({ token }) => toFelt(token.address));
    const readings = await adapter.current([...priced, unknown]);
    expect(readings).toHaveLength(priced.length);
    expect(new Set(readings.map(({ token }) => token))).toEqual(new Set(priced));
    for (const { price, confidence, observedAt } of readings) {
      expect(Number(price)).toBeGreaterThan(0);
      expect(Number(confidence)).toBeGreaterThan(0);
      expect(NOW - (observedAt ?? 0)).toBeLessThan(2 * MINUTE);
    }
    expect(readings.find(({ token }) => token === addressOf('component'))?.price).toMatch(/e-[0-9]+$/);
  });

  it('reads hourly history that equals the current prices of those hours', async () => {
    const from = NOW - 48 * 60 * MINUTE;
    const token = addressOf('eth');
    const points = await adapter.history(token, { from, to: NOW, stepMs: 60 * MINUTE });
    expect(points).toHaveLength(49);
    points.forEach((point, hour) => {
      expect(point.token).toBe(token);
      expect(Math.abs((point.observedAt ?? 0) - (from + hour * 60 * MINUTE))).toBeLessThan(2 * MINUTE);
    });
    feed.setClock(() => from);
    const [then] = await adapter.current([token]);
    feed.setClock(() => NOW);
    expect(then).toEqual(points[0]);
  });

  it('rejects a history beyond the limit of the feed', async () => {
    const reading = adapter.history(addressOf('eth'), { from: 0, to: 251 * MINUTE, stepMs: MINUTE });
    await expect(reading).rejects.toMatchObject({ code: 'FEED_ANSWER_INVALID', retryable: false });
    expect(adapter.pointsPerCall).toBe(250);
  });

  it('reads a price that is not a number as null, and keeps the address of the answer', async () => {
    feed.faults.add({ kind: 'garbage-price', value: '1.02', tokens: [addressOf('usdc')] });
    feed.faults.add({ kind: 'other-address', tokens: [addressOf('eth')] });
    const readings = await adapter.current([addressOf('usdc'), addressOf('eth')]);
    expect(readings.map(({ token, price }) => [token, price === null])).toEqual([
      [addressOf('usdc'), true],
      [toFelt(0x0bad00000000000000000000000000000000000000000000000000000000badn), false],
    ]);
  });

  it.each([
    ['http500', {}, 'FEED_UNREACHABLE', 3],
    ['hang', {}, 'FEED_UNREACHABLE', 3],
    ['http429', { retryAfter: 2 }, 'FEED_UNREACHABLE', 3],
    ['http429', { retryAfter: 60 }, 'FEED_UNREACHABLE', 1],
    ['not-json', {}, 'FEED_ANSWER_INVALID', 1],
    ['truncated', {}, 'FEED_ANSWER_INVALID', 1],
  ] as const)('rejects %s %j with %s after %i calls', async (kind, more: Partial<FeedFault>, code, calls) => {
    feed.faults.add({ kind, ...more });
    const before = feed.calls.length;
    await expect(adapter.current([addressOf('eth')])).rejects.toMatchObject({ code });
    expect(feed.calls.length - before).toBe(calls);
    // Not before the Retry-After of the feed.
    if (more.retryAfter === 2) expect(Math.min(...slept)).toBeGreaterThanOrEqual(2000);
  });

  it('accepts only Starknet addresses as tokens, and only whole seconds as times', async () => {
    const coinsOf = (entries: readonly string[]) =>
      createDefiLlama(
        { get: async () => `{"coins":{${entries.join()}}}`, close: async () => {} },
        'http://x',
      );
    const keys = [
      'ethereum:0x1',
      'starknet:0x1',
      'starknet:0x1:0x1',
      'starknet',
      '0x1',
      'starknet:ETH',
      'starknet:0X01',
    ];
    const coin = '{"price":1.50,"timestamp":1790000000,"confidence":0.9}';
    const read = await coinsOf(keys.map((key) => `"${key}":${coin}`)).current([toFelt(1n)]);
    const one = toFelt(1n);
    expect(read.map(({ token }) => token)).toEqual([null, one, null, null, null, null, one]);
    expect(read[1]).toEqual({ token: one, price: '1.50', confidence: '0.9', observedAt: 1_790_000_000_000 });

    const times = ['1790000000.5', '-5', '0', '1e99', '"1790000000"', 'null', '1.79e9'];
    const timed = await coinsOf(
      times.map((time, i) => `"starknet:0x${i}":{"price":1,"timestamp":${time}}`),
    ).current([one]);
    expect(timed.map(({ observedAt }) => observedAt)).toEqual([
      ...Array<null>(6).fill(null),
      1_790_000_000_000,
    ]);
    const shapeless = await coinsOf(['"starknet:0x1":7', '"starknet:0x2":null', '"starknet:0x3":[]']).current(
      [one],
    );
    expect(shapeless.map(({ price }) => price)).toEqual([null, null, null]);
  });

  it('retries after a 429', async () => {
    feed.faults.add({ kind: 'http429', times: 1 });
    expect(await adapter.current([addressOf('eth')])).toHaveLength(1);
    expect(slept[0]).toBeGreaterThanOrEqual(1000);
  });

  it('rejects an answer larger than its limit', async () => {
    const narrow = createDefiLlama(
      createTextReader({
        timeoutMs: 5000,
        maxAnswerBytes: 50,
        maxConcurrent: 1,
        clock: {
          now: () => NOW,
          wallTime: () => NOW,
          sleep: async () => {},
          turn: async () => {},
          random: () => 0,
        },
      }),
      feed.url,
    );
    await expect(narrow.current([addressOf('eth')])).rejects.toMatchObject({ code: 'FEED_ANSWER_INVALID' });
    await narrow.close();
  });
});
