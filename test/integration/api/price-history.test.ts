import { afterAll, beforeAll, expect, it } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { systemClock } from '../../../infra/clock.ts';
import type { Publisher } from '../../../infra/kafka/client.ts';
import { createLogger } from '../../../infra/log.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { rebuild } from '../../../projections/engine/rebuild/rebuild.ts';
import { runClickHouseProjections } from '../../../projections/engine/run/clickhouse-runner.ts';
import type { ProjectionRun } from '../../../projections/engine/run/lifetime.ts';
import { prices } from '../../../projections/prices/projector.ts';
import { pricesAtTimes } from '../../../projections/prices/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { PricesMessage } from '../../../schemas/messages/prices.ts';
import { topics } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { atEnd, until } from '../../support/projection-world.ts';
import { createRandom } from '../../support/random.ts';
import { writeSmallChain } from '../../support/small-chain.ts';

/**
 * Prices of the past over HTTP, from the log on, against points kept in a list and looked through one by one: buckets by
 * the calendar of `Date`, sums of numbers with as many decimals as were written.
 */

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const TOKENS = [0xa1n, 0xa2n, 0xa3n].map(toFelt);
const [FIRST = toFelt(1n)] = TOKENS;
const NEVER = toFelt(0xdeadn);
const INTERVALS = ['1 hour', '1 day', '1 week', '1 month'] as const;
type Interval = (typeof INTERVALS)[number];
/** Where a calendar goes wrong: a leap day, a Monday that begins a year, ends of months, a Sunday's last moment. */
const CORNERS = [
  '2024-02-29T00:00:00Z',
  '2024-03-01T00:00:00Z',
  '2023-12-31T23:00:00Z',
  '2024-01-01T00:00:00Z',
  '2024-01-08T00:00:00Z',
  '2023-10-29T01:00:00Z',
  '2024-12-30T00:00:00Z',
  '2025-02-28T23:00:00Z',
].map((text) => Date.parse(text));

interface Point {
  readonly token: Felt;
  readonly at: number;
  /** With at most six decimals. */
  readonly price: string;
}

const random = createRandom(35);
let world: ApiWorld;
let apiKey = '';
let clickhouse: ClickHouse;
let publisher: Publisher;
let run: ProjectionRun;
/** All that was published, in its order. */
const published: Point[] = [];

const log = createLogger('test', 'silent');
const metrics = createProjectionMetrics(createMetrics('test'));

beforeAll(async () => {
  world = await apiWorld();
  ({ apiKey } = await writeSmallChain(world));
  clickhouse = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  publisher = world.kafka.publisher();
  run = await runClickHouseProjections({
    kafka: world.kafka,
    clickhouse,
    pool: world.pool,
    projections: [prices],
    groupId: 'prices',
    log,
    metrics,
  });
  await publish(CORNERS.flatMap(around));
  await publish(Array.from({ length: 300 }, anyPoint));
});
afterAll(async () => {
  await run.stop();
  await publisher.close();
  await clickhouse.close();
  await world.close();
});

function anyPrice(): string {
  const micros = BigInt(random.below(2 ** 31)) * BigInt(random.below(2 ** 20) + 1);
  return decimal(micros + 1n, 6);
}

function anyPoint(): Point {
  const from = Date.parse('2023-09-15T00:00:00Z');
  return {
    token: random.pick(TOKENS),
    at: from + random.below(200) * 3 * DAY + random.below(DAY),
    price: anyPrice(),
  };
}

function around(corner: number): Point[] {
  return TOKENS.flatMap((token) =>
    [-HOUR - 1, -HOUR, -1, 0, 1, HOUR - 1, HOUR]
      .filter(() => random.chance(700))
      .map((off) => ({ token, at: corner + off, price: anyPrice() })),
  );
}

/** In the order given, which need not be that of time. */
async function publish(points: readonly Point[]): Promise<void> {
  const values = points.map(({ token, at, price }): PricesMessage => ({
    type: 'price.observed',
    v: 1,
    token,
    price,
    source: random.pick(['one', 'other']),
    confidence: null,
    observed_at: at,
  }));
  await publisher.publish(
    topics.prices,
    values.map((value) => ({ key: value.token, value })),
  );
  published.push(...points);
  await until(async () => await atEnd(world.kafka, world.pool, topics.prices, ['prices']));
}

/** What is known of a token: of two points of one moment the one that was published later. */
function pointsOf(token: Felt): Point[] {
  const byTime = new Map(
    published.filter((point) => point.token === token).map((point) => [point.at, point]),
  );
  return [...byTime.values()].toSorted((a, b) => a.at - b.at);
}

function decimal(value: bigint, places: number): string {
  const text = value.toString().padStart(places + 1, '0');
  const [whole, rest] = [text.slice(0, -places), text.slice(-places).replace(/0+$/, '')];
  return rest === '' ? whole : `${whole}.${rest}`;
}

const micros = (price: string): bigint => {
  const [whole = '', rest = ''] = price.split('.');
  return BigInt(whole + rest.padEnd(6, '0'));
};

function beginning(interval: Interval, at: number): number {
  const date = new Date(at);
  if (interval === '1 hour') return date.setUTCMinutes(0, 0, 0);
  date.setUTCHours(0, 0, 0, 0);
  if (interval === '1 week') date.setUTCDate(date.getUTCDate() - ((date.getUTCDay() + 6) % 7));
  if (interval === '1 month') date.setUTCDate(1);
  return date.getTime();
}

function expectedBuckets(token: Felt, interval: Interval, start: number, end: number) {
  const within = pointsOf(token).filter(({ at }) => {
    const begins = beginning(interval, at);
    return begins >= beginning(interval, start) && begins <= end;
  });
  const buckets = Map.groupBy(within, ({ at }) => beginning(interval, at));
  return [...buckets].map(([begins, points]) => {
    const sorted = points.map(({ price }) => micros(price)).toSorted((a, b) => (a < b ? -1 : a > b ? 1 : 0));
    return {
      timestamp: new Date(begins).toISOString(),
      min_price: decimal(sorted[0] ?? 0n, 6),
      max_price: decimal(sorted.at(-1) ?? 0n, 6),
      open_price: points[0]?.price.replace(/\.0+$/, ''),
      close_price: points.at(-1)?.price.replace(/\.0+$/, ''),
      /** Of the mean, what the sum is of which it is a part. */
      sum: Number(sorted.reduce((sum, one) => sum + one, 0n)) / 1e6,
      points: points.length,
    };
  });
}

const get = (path: string, query: Record<string, string>): Promise<Answer> =>
  world.call('GET', `${path}?${new URLSearchParams(query).toString()}`, { headers: { 'api-key': apiKey } });
const iso = (at: number): string => new Date(at).toISOString();

async function expectHistory(token: Felt, interval: Interval, start: number, end: number): Promise<void> {
  const { status, json } = await get('/api/price-history/', {
    token_address: token,
    start_time: iso(start),
    end_time: iso(end),
    interval,
  });
  const expected = expectedBuckets(token, interval, start, end);
  expect(status).toBe(200);
  expect({ ...json, data: [] }).toEqual({
    success: true,
    count: expected.length,
    token_address: token,
    interval,
    start_time: iso(start),
    end_time: iso(end),
    data: [],
  });
  for (const [i, { sum, points, ...bucket }] of expected.entries()) {
    const { avg_price: mean, ...shown } = json.data[i];
    expect(shown).toEqual(bucket);
    expect(mean).toMatch(/^\d+(\.\d*[1-9])?$/);
    expect(Number(mean) / (sum / points)).toBeCloseTo(1, 12);
  }
}

async function expectPrices(): Promise<void> {
  for (const token of TOKENS) {
    for (const interval of INTERVALS) {
      const days = interval === '1 hour' ? 150 : 700;
      const start = Date.parse('2023-09-01T00:00:00Z') + random.below(60) * DAY + random.below(DAY);
      await expectHistory(token, interval, start, start + random.below(days) * DAY + random.below(DAY));
      const corner = random.pick(CORNERS);
      await expectHistory(token, interval, corner, corner);
      await expectHistory(token, interval, corner - DAY, corner - 1);
    }
    const points = pointsOf(token);
    for (const { at } of Array.from({ length: 5 }, () => random.pick(points))) {
      for (const time of [at - 1, at, at + 1]) {
        const last = points.findLast((point) => point.at <= time);
        const { status, json } = await get('/api/price-at/', { token_address: token, at_time: iso(time) });
        expect([status, json.data?.price_usd]).toEqual(
          last === undefined ? [404, undefined] : [200, Number(last.price)],
        );
      }
    }
  }
}

it('gives the points of any bucket and the price at any time', expectPrices);

it('returns the prices of many tokens at many times in one call', async () => {
  const served = await servedBuilds(world.pool);
  const from = Date.parse('2023-09-20T00:00:00Z');
  for (const grain of [HOUR, DAY, 1, 977]) {
    for (const span of [2 * DAY, 500 * DAY]) {
      const times = Array.from({ length: 60 }, () => from + Math.floor(random.below(span) / grain) * grain);
      times.push(...CORNERS.filter(() => random.chance(500)));
      times.sort((a, b) => a - b);
      const found = await pricesAtTimes(clickhouse, served, [...TOKENS, NEVER], times);
      const expected = times.map((time) =>
        TOKENS.flatMap((token) => {
          const last = pointsOf(token).findLast(({ at }) => at <= time);
          return last === undefined ? [] : [[token, last.price.replace(/\.0+$/, '')]];
        }),
      );
      expect(found.map((prices) => [...prices].toSorted(([a], [b]) => (a < b ? -1 : 1)))).toEqual(expected);
    }
  }
});

it('changes only its own bucket for late and duplicate points', async () => {
  await publish(published.filter(() => random.chance(100)));
  await publish(CORNERS.flatMap(around));
  // Another price of the same moment: the later word counts.
  await publish(published.filter(() => random.chance(50)).map((point) => ({ ...point, price: anyPrice() })));
  await expectPrices();
});

it('is the same after a rebuild from the log', async () => {
  const { signal } = new AbortController();
  const report = await rebuild(
    { kafka: world.kafka, clickhouse, pool: world.pool, clock: systemClock, log, metrics, signal },
    [prices],
    { swap: true, onProgress: () => {} },
  );
  expect(report.tables.map(({ table, differing }) => ({ table, differing }))).toEqual([
    { table: 'price_points', differing: [] },
    { table: 'ohlc_hourly', differing: [] },
  ]);
  expect(report.tables[0]?.rows).toBe(TOKENS.flatMap(pointsOf).length);
  await expectPrices();
  await publish(CORNERS.flatMap(around));
  await expectPrices();
});

it('has no price before the first one, and none for an unpriced token', async () => {
  const first = pointsOf(FIRST)[0]?.at ?? 0;
  const before = await get('/api/price-at/', { token_address: FIRST, at_time: iso(first - 1) });
  expect(before.status).toBe(404);
  expect(before.json).toMatchObject({ success: false, detail: 'No price at or before at_time.' });
  const never = await get('/api/price-at/', { token_address: NEVER, at_time: iso(Date.now()) });
  expect([never.status, never.json.success]).toEqual([404, false]);
  const none = await get('/api/price-history/', {
    token_address: '0xDEAD',
    start_time: iso(Date.now() - DAY),
  });
  expect([none.status, none.json.data, none.json.count]).toEqual([200, [], 0]);
  expect(none.json.token_address).toBe(NEVER);
});

it('returns the prices of thousands of tokens, recent and old ones', async () => {
  const day = Date.parse('2022-03-01T00:00:00Z');
  const many = Array.from({ length: 2500 }, (_, i) => toFelt(0x5eed_0000n + BigInt(i)));
  const priceOf = new Map(many.map((token, i) => [token, String(i + 1)]));
  await publish(
    [...priceOf].map(([token, price], i) => ({ token, price, at: i % 2 === 0 ? day : day - 30 * DAY })),
  );
  const [found] = await pricesAtTimes(clickhouse, await servedBuilds(world.pool), many, [day + HOUR / 2]);
  expect(found).toEqual(priceOf);
});

it('finds a price of any age, also when the previous day begins within its hour', async () => {
  const lonely = toFelt(0x10e1n);
  const at = Date.parse('2024-05-01T10:10:00Z');
  await publish([{ token: lonely, at, price: '7' }]);
  for (const later of [1, DAY - 1, DAY, DAY + HOUR / 2, DAY + HOUR, 3 * DAY, 3000 * DAY]) {
    const { json } = await get('/api/price-at/', { token_address: lonely, at_time: iso(at + later) });
    expect([later, json.data?.price_usd]).toEqual([later, 7]);
  }
});

it('defaults to an interval of an hour and to an end of now', async () => {
  const at = Date.now() - HOUR;
  await publish([
    { token: NEVER, at, price: '0.000000' },
    { token: NEVER, at: at + 1, price: '3' },
  ]);
  const { json } = await get('/api/price-history/', {
    token_address: NEVER,
    start_time: iso(at),
    interval: '',
  });
  expect(json.interval).toBe('1 hour');
  expect(Date.parse(json.end_time)).toBeGreaterThan(at);
  expect(json.data).toEqual([
    {
      timestamp: iso(beginning('1 hour', at)),
      avg_price: '1.5',
      min_price: '0',
      max_price: '3',
      open_price: '0',
      close_price: '3',
    },
  ]);
});

it('returns at most 5,000 buckets, and the start of the next page', async () => {
  const busy = toFelt(0xb5b5n);
  const hours = Array.from({ length: 5002 }, (_, i) => Date.parse('2023-01-01T00:20:00Z') + i * HOUR);
  await publish(hours.map((at) => ({ token: busy, at, price: '1.000001' })));
  const query = { token_address: busy, start_time: '2023-01-01', interval: '1 hour' };
  const { json: first } = await get('/api/price-history/', query);
  const { json: rest } = await get('/api/price-history/', { ...query, start_time: first.next_start_time });
  expect([first.count, rest.count, rest.next_start_time]).toEqual([5000, 2, undefined]);
  const seen = [...first.data, ...rest.data].map(({ timestamp }) => Date.parse(timestamp));
  expect(seen).toEqual(hours.map((at) => beginning('1 hour', at)));
  const csv = await get('/api/price-history/', { ...query, format: 'csv' });
  expect(csv.headers.get('x-next-start-time')).toBe(first.next_start_time);
  const [names, ...rows] = csv.text.trimEnd().split('\n');
  expect(names).toBe('timestamp,avg_price,min_price,max_price,open_price,close_price');
  expect(rows).toEqual(first.data.map((row: Record<string, unknown>) => Object.values(row).join(',')));
});

it('rejects invalid requests', async () => {
  const token = { token_address: FIRST };
  const refusals: [Record<string, string>, string, string][] = [
    [
      { ...token, start_time: '2024-01-01', interval: '5 minutes' },
      'interval',
      'Must be one of: 1 hour, 1 day, 1 week, 1 month.',
    ],
    [
      { ...token, start_time: '2024-01-02', end_time: '2024-01-01' },
      'start_time',
      'Must not be later than end_time.',
    ],
    [{ ...token }, 'start_time', 'This field is required.'],
    [{ start_time: '2024-01-01' }, 'token_address', 'This field is required.'],
    [{ ...token, start_time: 'yesterday' }, 'start_time', 'Datetime has wrong format.'],
    [
      { ...token, start_time: '2024-01-01', end_time: '2024-13-01' },
      'end_time',
      'Datetime has wrong format.',
    ],
  ];
  for (const [query, field, text] of refusals) {
    const { status, json } = await get('/api/price-history/', query);
    expect([status, json.success, Object.keys(json.errors)]).toEqual([400, false, [field]]);
    expect(json.errors[field][0]).toContain(text);
  }
  const months = await get('/api/price-history/', {
    ...token,
    start_time: '0001-01-01',
    end_time: '9999-12-31',
    interval: '1 month',
  });
  expect(months.json.count).toBe(new Set(pointsOf(FIRST).map(({ at }) => beginning('1 month', at))).size);
});
