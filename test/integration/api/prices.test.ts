import { afterAll, beforeAll, beforeEach, describe, expect, it, test } from 'vitest';

import { createMetrics } from '../../../infra/metrics.ts';
import { createLogger } from '../../../infra/log.ts';
import type { Publisher } from '../../../infra/kafka/client.ts';
import type { Consumption } from '../../../infra/kafka/consumption.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import type { ProjectionRun } from '../../../projections/engine/run/lifetime.ts';
import { runPostgresProjection } from '../../../projections/engine/run/postgres-runner.ts';
import { latestPrices } from '../../../projections/latest-prices/projector.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { pricesMessage } from '../../../schemas/messages/prices.ts';
import { requestsMessage } from '../../../schemas/messages/requests.ts';
import { topics } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { BOB, COIN, NFT, writeSmallChain } from '../../support/small-chain.ts';
import { until } from '../../support/projection-world.ts';

/** The routes of prices over HTTP; the test answers requests on the log as the observer of prices would. */

let world: ApiWorld;
let apiKey = '';
let run: ProjectionRun;
let asked: Consumption;
let publisher: Publisher;
/** What was asked for on the log, and what is published for it. */
let requests: Felt[] = [];
let feed = new Map<Felt, { price: string; observed_at: number } | 'nothing new'>();

beforeAll(async () => {
  world = await apiWorld();
  ({ apiKey } = await writeSmallChain(world));
  publisher = world.kafka.publisher();
  const log = createLogger('test', 'silent');
  run = await runPostgresProjection({
    kafka: world.kafka,
    pool: world.pool,
    projection: latestPrices,
    groupId: 'latest-prices',
    log,
    metrics: createProjectionMetrics(createMetrics('test')),
  });
  asked = await world.kafka.consume({
    groupId: 'feed',
    topics: [topics.requests],
    startAt: async () => 0,
    async onBatch({ messages }) {
      for (const { value } of messages) {
        const message = requestsMessage.parse(JSON.parse(value.toString()));
        if (message.type !== 'price.requested') continue;
        requests.push(message.token);
        const found = feed.get(message.token);
        if (found !== undefined) await publish(message.token, found, message.requested_at);
      }
    },
    onCrash: () => {},
  });
});
afterAll(async () => {
  await asked.stop();
  await run.stop();
  await publisher.close();
  await world.close();
});
beforeEach(() => {
  requests = [];
  feed = new Map();
});

/** As the small chain has them. */
const blockHash = (height: number): Felt => toFelt(0xb10c_0000n + BigInt(height));

async function publish(
  token: Felt,
  found: { price: string; observed_at: number } | 'nothing new',
  requested_at?: number,
): Promise<void> {
  const common = { v: 1, token, source: 'test', requested_at };
  const value = pricesMessage.parse(
    found === 'nothing new'
      ? { ...common, type: 'price.unchanged', reason: 'unknown', observed_at: Date.now() }
      : { ...common, type: 'price.observed', confidence: '0.99', ...found },
  );
  await publisher.publish(topics.prices, [{ key: token, value }]);
}

const price = (query: Record<string, string>): Promise<Answer> =>
  world.call('GET', `/api/price/?${new URLSearchParams(query).toString()}`, {
    headers: { 'api-key': apiKey },
  });
const many = (json: unknown): Promise<Answer> =>
  world.call('POST', '/api/prices/', { headers: { 'api-key': apiKey }, json });
const usdOf = async (token: Felt): Promise<number> =>
  (await price({ token_address: token })).json.data.price_usd;

describe('GET /api/price/', () => {
  it('requests an unknown price from the feed, and returns the newest', async () => {
    feed.set(COIN, { price: '1.25', observed_at: Date.now() });
    const { status, json } = await price({ token_address: '0xC01' });
    expect([status, json]).toEqual([
      200,
      { success: true, data: { token_address: COIN, price_usd: 1.25, force_refresh: false } },
    ]);
    // It is young: nobody is asked again.
    expect(await usdOf(COIN)).toBe(1.25);
    expect(requests).toEqual([COIN]);
  });

  it('with force_refresh always requests the feed, and waits for the answer', async () => {
    // Those who ask within a second share a request.
    const later = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1100));
    await later();
    feed.set(COIN, { price: '1.5', observed_at: Date.now() });
    const { json } = await price({ token_address: COIN, force_refresh: 'TRUE' });
    expect(json.data).toEqual({ token_address: COIN, price_usd: 1.5, force_refresh: true });
    feed.set(COIN, 'nothing new');
    await later();
    expect((await price({ token_address: COIN, force_refresh: '1' })).json.data.price_usd).toBe(1.5);
    expect(requests).toEqual([COIN, COIN]);
  });

  it('returns 0 for a token that the feed does not know', async () => {
    const unknown = toFelt(0x999n);
    feed.set(unknown, 'nothing new');
    expect(await usdOf(unknown)).toBe(0);
    expect(await usdOf(unknown)).toBe(0);
    expect(requests).toEqual([unknown]);
  });

  it('uses the newest price by time, and of equal times the later message', async () => {
    const token = toFelt(0x77n);
    feed.set(token, 'nothing new');
    const at = Date.now() - 1000;
    for (const [usd, observed_at] of [
      ['7.1', at],
      ['7.2', at],
      ['3', at - 86_400_000],
    ] as const) {
      await publish(token, { price: usd, observed_at });
    }
    await until(async () => (await usdOf(token)) === 7.2);
    await publish(token, { price: '0.000000000000000123', observed_at: at + 1 });
    await until(async () => (await usdOf(token)) === 1.23e-16);
  });

  it.each([
    [{}, 'token_address', 'This field is required.'],
    [{ token_address: '' }, 'token_address', 'This field is required.'],
    [{ token_address: 'coin' }, 'token_address', 'Enter a valid address (0x and up to 64 hex digits).'],
    [{ token_address: COIN, force_refresh: 'often' }, 'force_refresh', 'Must be a valid boolean.'],
  ])('refuses %o', async (query, field, text) => {
    const { status, json } = await price(query as Record<string, string>);
    expect([status, json.errors]).toEqual([400, { [field]: [text] }]);
  });
});

describe('POST /api/prices/', () => {
  it('returns known prices in request order, and requests the rest', async () => {
    const fresh = toFelt(0x4242n);
    const { status, json } = await many({ token_addresses: [fresh, '0xc01', fresh] });
    expect(status).toBe(200);
    expect(json.data).toEqual([
      { token_address: fresh, price_usd: 0, price_updated_at: null },
      { token_address: COIN, price_usd: 1.5, price_updated_at: expect.stringMatching(/^20.*Z$/) },
      { token_address: fresh, price_usd: 0, price_updated_at: null },
    ]);
    await until(async () => requests.includes(fresh));
    expect(requests).toEqual([fresh]);
  });

  it.each([
    [{}],
    [{ token_addresses: [] }],
    [{ token_addresses: ['coin'] }],
    [{ token_addresses: [7] }],
    [{ token_addresses: COIN }],
    [{ token_addresses: Array.from({ length: 101 }, () => COIN) }],
  ])('refuses %o', async (body) => {
    const { status, json } = await many(body);
    expect([status, Object.keys(json.errors)[0]]).toEqual([400, expect.stringMatching(/^token_addresses/)]);
  });
});

describe('GET /api/tokens/', () => {
  const get = (path: string): Promise<Answer> => world.call('GET', path, { headers: { 'api-key': apiKey } });

  it('shows the newest price unchanged, with its time', async () => {
    const at = Date.now();
    await publish(COIN, { price: '1.2300', observed_at: at });
    await until(async () => (await get(`/api/tokens/${COIN}/`)).json.current_price_usd === '1.2300');
    const { json } = await get('/api/tokens/?address=0xc01');
    expect(json.results[0]).toMatchObject({
      current_price_usd: '1.2300',
      price_updated_at: new Date(at).toISOString(),
    });
    expect((await get(`/api/tokens/${NFT}/`)).json).toMatchObject({
      current_price_usd: null,
      price_updated_at: null,
    });
  });
});

test('a balance is valued at the newest price', async () => {
  const { rows } = await world.pool.query(
    "SELECT names->>'schema' AS schema FROM tds.builds WHERE projection = 'balances'",
  );
  const head = blockHash(40);
  await world.pool.query(
    `INSERT INTO ${rows[0]?.schema}.anchors (account, token, block, block_hash, balance, observed_at, requested_at)
     VALUES ($1, $2, 40, $3, 2500000, $4, $4)`,
    [BOB, COIN, head, Date.now()],
  );
  await publish(COIN, { price: '0.5', observed_at: Date.now() + 1 });
  await until(async () => (await usdOf(COIN)) === 0.5);
  const path = `/api/balance/?account_address=${BOB}&token_address=${COIN}`;
  const { json } = await world.call('GET', path, { headers: { 'api-key': apiKey } });
  // COIN has six decimals.
  expect(json.data).toMatchObject({ balance: '2500000', balance_usd: 1.25 });
});
