import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';

import { coins } from '../../../infra/embedded/prices/coins.ts';
import { createSimulatedFeed } from '../../support/simulated-feed.ts';
import type { SimulatedFeed } from '../../support/simulated-feed.ts';
import { tokenListUrl } from '../../../infra/embedded/prices/prices.ts';
import { systemClock } from '../../../infra/clock.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { createTextReader } from '../../../pipeline/observe/http.ts';
import type { TextReader } from '../../../pipeline/observe/http.ts';
import { acceptTokenList, runTokenList } from '../../../pipeline/observe/token-list.ts';
import type { ObserverRun } from '../../../pipeline/observe/observer.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { tokensMessage } from '../../../schemas/messages/tokens.ts';
import type { TokensMessage } from '../../../schemas/messages/tokens.ts';
import { topics } from '../../../schemas/topics.ts';
import { observerWorld } from '../../support/observer-world.ts';
import type { ObserverWorld } from '../../support/observer-world.ts';
import { logOf } from '../../support/topic.ts';

const reader = createTextReader({
  timeoutMs: 2000,
  maxAnswerBytes: 1_000_000,
  maxConcurrent: 1,
  maxAttempts: 1,
  clock: systemClock,
});
let world: ObserverWorld;
let log: ObserverWorld['log'];
let pool: Pool;
let kafka: Kafka;
let feed: SimulatedFeed;
const running: ObserverRun[] = [];

beforeAll(async () => {
  world = await observerWorld();
  ({ pool, kafka, log } = world);
  feed = await createSimulatedFeed();
});
afterEach(async () => {
  feed.faults.clear();
  await Promise.all(running.splice(0).map((run) => run.stop()));
});
afterAll(async () => {
  await reader.close();
  await feed.close();
  await world.close();
});

async function start(list: TextReader = reader): Promise<void> {
  running.push(
    await runTokenList({
      config: { tokenListPollSeconds: 0.05 },
      reader: list,
      url: tokenListUrl(feed.url),
      pool,
      kafka,
      log,
    }),
  );
}

async function listed(): Promise<Extract<TokensMessage, { type: 'token.listed' }>[]> {
  const found: TokensMessage[] = [];
  for await (const { key, value } of logOf(kafka, topics.tokens)) {
    const message = tokensMessage.parse(JSON.parse(value.toString()));
    expect(key).toBe(message.token);
    found.push(message);
  }
  return found.filter((message) => message.type === 'token.listed');
}

/** Waits until the list was read `count` more times. */
async function rounds(count: number): Promise<void> {
  const before = feed.calls.length;
  await eventually(async () => expect(feed.calls.length).toBeGreaterThanOrEqual(before + count));
}

const eventually = <T>(look: () => Promise<T>): Promise<T> =>
  vi.waitFor(look, { timeout: 30_000, interval: 20 });
const alarms = async (): Promise<unknown[]> => (await pool.query('SELECT name, detail FROM tds.alarms')).rows;
const addressOf = (key: string): Felt =>
  toFelt(coins.find(({ token }) => token.key === key)?.token.address ?? 0n);
const flags = ({ verified, common, public: isPublic, logo }: Awaited<ReturnType<typeof listed>>[number]) => ({
  verified,
  common,
  public: isPublic,
  logo,
});
/** `hostile` is listed without flags and logo, and is not published. */
const publishedTokens = coins.length - 1;

test('publishes each listing once, over restarts and with two processes', async () => {
  await start();
  await start();
  await eventually(async () => expect(await listed()).toHaveLength(publishedTokens));
  await rounds(3);
  await Promise.all(running.splice(0).map((run) => run.stop()));
  await start();
  await rounds(3);
  const found = await listed();
  expect(found).toHaveLength(publishedTokens);
  const flagsByToken = new Map(found.map((message) => [message.token, flags(message)]));
  expect(flagsByToken.get(addressOf('strk'))).toEqual({
    verified: true,
    common: true,
    public: false,
    logo: 'https://logos.example/starknet/strk.png',
  });
  expect(flagsByToken.get(addressOf('keyed'))).toMatchObject({
    verified: true,
    common: false,
    public: false,
  });
  expect(flagsByToken.get(addressOf('component'))).toMatchObject({
    verified: false,
    common: false,
    public: true,
  });
  expect(flagsByToken.has(addressOf('hostile'))).toBe(false);
});

test('clears the flags of a token that leaves the list, and sets them again when it returns', async () => {
  await start();
  const eth = addressOf('eth');
  const ofEth = async () => (await listed()).filter(({ token }) => token === eth).map(flags);
  const [first] = await ofEth();
  feed.faults.add({ kind: 'missing', tokens: [eth] });
  await eventually(async () => expect(await ofEth()).toHaveLength(2));
  await rounds(3);
  feed.faults.clear();
  await eventually(async () => expect(await ofEth()).toHaveLength(3));
  expect(await ofEth()).toEqual([first, { ...first, verified: false, common: false }, first]);
});

test.each([
  ['http500', {}, /^unavailable: HTTP 500$/],
  ['truncated', {}, /^unavailable: the answer is not a page/],
  ['missing', {}, /^unavailable: the token list lost 11 of 11 tokens at once/],
] as const)(
  'raises an alarm and publishes nothing on %s, and clears it afterwards',
  async (kind, more, detail) => {
    const before = (await listed()).length;
    feed.faults.add({ kind, ...more });
    await start();
    await eventually(async () =>
      expect(await alarms()).toEqual([{ name: 'tokens.list', detail: expect.stringMatching(detail) }]),
    );
    feed.faults.clear();
    await eventually(async () => expect(await alarms()).toEqual([]));
    expect(await listed()).toHaveLength(before);
  },
);

test('refuses a list without tokens also when as many have left it before', async () => {
  await pool.query(
    `INSERT INTO tds.token_list (token, verified, common, public, logo)
     SELECT '0x' || lpad(to_hex(i), 64, '0'), false, false, false, 'https://logos.example/old.png'
     FROM generate_series(1, 11) AS i`,
  );
  const before = (await listed()).length;
  feed.faults.add({ kind: 'missing' });
  await start();
  await eventually(async () =>
    expect(await alarms()).toEqual([
      { name: 'tokens.list', detail: expect.stringMatching(/lost 11 of 11 tokens at once/) },
    ]),
  );
  feed.faults.clear();
  await eventually(async () => expect(await alarms()).toEqual([]));
  expect(await listed()).toHaveLength(before);
});

test.each([
  ['tokens', ['verified'], /lost 11 of 11 tokens at once/],
  ['common tokens', ['Verified'], /lost 11 of 11 common tokens at once/],
])('refuses a list that has its tokens, but not the tags of its %s', async (_, tags, detail) => {
  await pool.query('DELETE FROM tds.token_list');
  const before = (await listed()).length;
  const tokens = Array.from({ length: 11 }, (_token, i) => toFelt(BigInt(i + 1)));
  let current = ['AVNU', 'Verified'];
  const page = () => ({
    content: tokens.map((address) => ({ address, tags: current })),
    totalPages: 1,
    totalElements: tokens.length,
  });
  await start({ get: async () => JSON.stringify(page()), close: async () => {} });
  await eventually(async () => expect(await listed()).toHaveLength(before + 11));
  current = tags;
  await eventually(async () =>
    expect(await alarms()).toEqual([{ name: 'tokens.list', detail: expect.stringMatching(detail) }]),
  );
  current = ['AVNU', 'Verified'];
  await eventually(async () => expect(await alarms()).toEqual([]));
  expect(await listed()).toHaveLength(before + 11);
});

test('publishes a refused list once an operator accepts it, and clears the alarm', async () => {
  await pool.query('DELETE FROM tds.token_list');
  const tokens = Array.from({ length: 12 }, (_, i) => toFelt(BigInt(0x1000 + i)));
  let content = tokens.map((address) => ({ address, tags: ['AVNU', 'Verified'] }));
  const list: TextReader = {
    get: async () => JSON.stringify({ content, totalPages: 1, totalElements: content.length }),
    close: async () => {},
  };
  const flagsOf = async () =>
    new Map((await listed()).map((message) => [message.token, message.verified && message.common]));
  await start(list);
  await eventually(async () => expect((await flagsOf()).get(tokens[11]!)).toBe(true));
  content = content.slice(0, 5);
  await eventually(async () =>
    expect(await alarms()).toEqual([
      {
        name: 'tokens.list',
        detail: expect.stringMatching(/lost 7 of 12 tokens .*: tds catalogue accept-token-list$/),
      },
    ]),
  );
  const publisher = kafka.publisher();
  const deps = { pool, publisher, log, now: Date.now };
  // While the observer reads the list, it is not accepted.
  const accepted = await eventually(() =>
    acceptTokenList(deps, { reader: list, url: 'http://list.example/' }),
  );
  await publisher.close();
  expect(accepted).toEqual({ changed: 0, unlisted: 7 });
  const now = await flagsOf();
  expect(tokens.map((token) => now.get(token))).toEqual(tokens.map((_, i) => i < 5));
  await eventually(async () => expect(await alarms()).toEqual([]));
});
