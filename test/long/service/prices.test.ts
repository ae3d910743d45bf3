import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { pino } from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import { coins } from '../../../infra/embedded/prices/coins.ts';
import { createSimulatedFeed } from '../../support/simulated-feed.ts';
import type { SimulatedFeed } from '../../support/simulated-feed.ts';
import { tokenListUrl } from '../../../infra/embedded/prices/prices.ts';
import { freePort } from '../../../infra/embedded/ports.ts';
import { createKafka } from '../../../infra/kafka/client.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { eventually, startService } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';
import { tds } from '../../support/tds.ts';
import { messagesOf } from '../../support/topic.ts';

/** From feed to log: a list makes tokens common, their prices are read, the feed gives wrong prices and recovers. */
let own: Isolated;
let feed: SimulatedFeed;
let kafka: Kafka;
let service: RunningService;
let env: Record<string, string>;
const dataDir = mkdtempSync(join(tmpdir(), 'tds-prices-'));
chmodSync(dataDir, 0o755);

const common = coins.filter(({ tags }) => tags.includes('AVNU')).map(({ token }) => toFelt(token.address));
const eth = toFelt(coins.find(({ token }) => token.key === 'eth')?.token.address ?? 0n);

beforeAll(async () => {
  own = await isolated();
  feed = await createSimulatedFeed({ everySeconds: 1 });
  env = {
    ...own.env,
    PORT: String(await freePort()),
    PRICE_FEED_URL: feed.url,
    TOKEN_LIST_URL: tokenListUrl(feed.url),
    PRICE_POLL_SECONDS: '1',
    PRICE_TIMEOUT_MS: '1000',
  };
  kafka = createKafka({
    brokers: own.env.KAFKA_BROKERS.split(','),
    clientId: 'test',
    topicPrefix: own.env.KAFKA_TOPIC_PREFIX,
    log: pino({ level: 'silent' }),
  });
  service = await startService(dataDir, env);
});
afterAll(async () => {
  await service.stop();
  await kafka.close();
  await feed.close();
  await own.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

async function observed(): Promise<Map<string, { price: number; at: number }[]>> {
  const found = new Map<string, { price: number; at: number }[]>();
  for (const message of await messagesOf(kafka, topics.prices)) {
    if (message.type !== 'price.observed') continue;
    const prices = found.get(message.token) ?? [];
    found.set(message.token, prices);
    prices.push({ price: Number(message.price), at: message.observed_at });
  }
  return found;
}
const history = z.object({ data: z.array(z.object({ timestamp: z.string() })) });
const status = z.object({
  alarms: z.array(z.object({ name: z.string(), detail: z.string() })),
  prices: z.array(z.object({ refusal: z.string().nullable(), tokens: z.number() })),
});
const operate = async (...args: readonly string[]) => await tds({ ...env, DATA_DIR: dataDir }, ...args);
const alarms = async () => status.parse(JSON.parse((await operate('status', '--json')).stdout)).alarms;

test('prices of listed tokens reach the log, invalid prices are rejected, and status shows the rejections', async () => {
  await eventually(async () =>
    expect([...(await observed()).keys()]).toEqual(expect.arrayContaining(common)),
  );
  // The listings and the prices are in different topics: the tokens may be written after the prices are in the log.
  await eventually(async () => {
    const { json } = await service.get('/api/tokens/?common=true');
    expect(json).toMatchObject({ count: common.length });
  }, 10_000);
  expect((await operate('status', '--once')).stdout).toMatch(
    /^prices +\d+ accepted, 1 untracked; last published/m,
  );

  feed.faults.add({ kind: 'factor', tokens: [eth] });
  const jump = await eventually(async () => {
    const found = (await alarms()).find(({ name }) => name === `prices.refused:${eth}`);
    expect(found).toBeDefined();
    return found;
  });
  expect(jump?.detail).toMatch(/^jump: from [0-9.]+ to [0-9.]+ \(factor \d{3,4}\), \d of 5 confirmations$/);
  feed.faults.clear();
  feed.faults.add({ kind: 'hang' });
  await eventually(async () => expect((await alarms()).map(({ name }) => name)).toContain('prices.feed'));
  expect((await service.get('/readyz')).status).toBe(200);
  feed.faults.clear();
  await eventually(async () => expect(await alarms()).toEqual([]));

  const filled = await operate(
    'prices',
    'backfill',
    eth,
    '--from',
    new Date(Date.now() - 86_400_000).toISOString(),
  );
  expect(filled).toMatchObject({ code: 0, stdout: expect.stringMatching(/^2[45] prices are published/) });
  const prices = (await observed()).get(eth) ?? [];
  expect(prices.length).toBeGreaterThanOrEqual(26);
  for (const { price, at } of prices) {
    feed.setClock(() => at);
    const answer = await fetch(
      `${feed.url}/prices/current/starknet:${coins.find(({ token }) => toFelt(token.address) === eth)?.address}`,
    );
    const text = await answer.text();
    expect(text).toContain(`"price":${price},"timestamp":${at / 1000},`);
  }

  // Past prices are served from what the log holds.
  const points = [...new Map(prices.map((point) => [point.at, point])).values()];
  const hours = new Set(points.map(({ at }) => Math.floor(at / 3_600_000)));
  const since = new Date(Math.min(...points.map(({ at }) => at))).toISOString();
  await eventually(async () => {
    const { json: past } = await service.get(`/api/price-history/?token_address=${eth}&start_time=${since}`);
    const served = history.parse(past).data.map(({ timestamp }) => Date.parse(timestamp) / 3_600_000);
    expect(new Set(served)).toEqual(new Set([...served, ...hours]));
  });
  for (const { price, at } of points) {
    const { json: known } = await service.get(
      `/api/price-at/?token_address=${eth}&at_time=${new Date(at).toISOString()}`,
    );
    expect(known).toMatchObject({ data: { price_usd: price } });
  }
});
