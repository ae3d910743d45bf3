import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';

import { setDisabled } from '../../../infra/bin/operator/accounts.ts';
import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { systemClock } from '../../../infra/clock.ts';
import type { Clock } from '../../../infra/clock.ts';
import { loadConfig } from '../../../infra/config.ts';
import type { Publisher } from '../../../infra/kafka/client.ts';
import { createLogger } from '../../../infra/log.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { createSealing } from '../../../infra/sealing.ts';
import { createEgress } from '../../../pipeline/egress/egress.ts';
import { createDispatcher } from '../../../pipeline/dispatch/dispatcher.ts';
import type { Dispatcher } from '../../../pipeline/dispatch/dispatcher.ts';
import { balances } from '../../../projections/balances/projector.ts';
import { chainStatus } from '../../../projections/chain-status/projector.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { runClickHouseProjections } from '../../../projections/engine/run/clickhouse-runner.ts';
import { runPostgresProjection } from '../../../projections/engine/run/postgres-runner.ts';
import type { ProjectionRun } from '../../../projections/engine/run/lifetime.ts';
import { chainProjections } from '../../../projections/index.ts';
import { latestPrices } from '../../../projections/latest-prices/projector.ts';
import { prices } from '../../../projections/prices/projector.ts';
import { servedBuilds, servedSchema } from '../../../projections/served.ts';
import { tokens } from '../../../projections/tokens/projector.ts';
import { STRK_TOKEN, ZERO_FELT, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { BlockBody, ChainBlocksMessage, RawEvent } from '../../../schemas/messages/chain-blocks.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import { verify } from '../../../schemas/webhooks/signature.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import {
  ART,
  COIN,
  ITEMS,
  RIDDLE,
  accepted,
  batchEvent,
  makeBlock,
  reverted,
  transferEvent,
} from '../../support/chain-messages.ts';
import { atEnd, until } from '../../support/projection-world.ts';
import { isConsumed } from '../../support/topic.ts';

/**
 * What is sent of what the log says, from a webhook made over HTTP to what its receiver got. Real stores; the blocks, prices
 * and tokens are written to the log by hand.
 */

const [ALICE, BOB, CAROL, DAVE] = [0xa11cen, 0xb0bn, 0xca401n, 0xdafen].map(toFelt) as [
  Felt,
  Felt,
  Felt,
  Felt,
];

interface Got {
  readonly id: string;
  readonly event: string;
  readonly createdAt: string;
  // oxlint-disable-next-line typescript/no-explicit-any -- data of any event
  readonly data: any;
}

interface HistoryRow {
  readonly event_index: number;
  readonly balance: string;
  readonly token_price_usd: number | null;
  readonly balance_usd: number | null;
}

let world: ApiWorld;
let clickhouse: ClickHouse;
let publisher: Publisher;
let runs: ProjectionRun[] = [];
let dispatcher: Dispatcher;
let server: Server;
let port = 0;
let user: { token: string; id: number };
let apiKey = '';
/** What each receiver got, by the path of its URL. */
const got = new Map<string, Got[]>();
const secrets = new Map<string, string>();
const log = createLogger('test', 'warn');
const startedAt = Date.now();
/** Of a machine that was suspended for an hour. */
const suspendedClock: Clock = { ...systemClock, now: () => systemClock.now() - 3_600_000 };

beforeAll(async () => {
  world = await apiWorld({ WEBHOOK_ALLOW_NETWORKS: '127.0.0.0/8' });
  clickhouse = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  publisher = world.kafka.publisher();
  const { kafka, pool } = world;
  const common = { kafka, pool, log, metrics: createProjectionMetrics(createMetrics('test')) };
  runs = await Promise.all([
    ...[tokens, chainStatus, latestPrices, balances].map((projection) =>
      runPostgresProjection({ ...common, projection: projection as typeof tokens, groupId: projection.name }),
    ),
    runClickHouseProjections({ ...common, clickhouse, projections: chainProjections, groupId: 'project' }),
    runClickHouseProjections({ ...common, clickhouse, projections: [prices], groupId: 'project-prices' }),
  ]);
  server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const path = request.url ?? '';
      const body = Buffer.concat(chunks);
      const { event, created_at: createdAt, data } = verify(body, request.headers, secrets.get(path) ?? '');
      got.set(path, [
        ...(got.get(path) ?? []),
        { id: String(request.headers['x-vendor-delivery']), event, createdAt, data },
      ]);
      response.end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  ({ port } = server.address() as AddressInfo);
  user = await world.makeUser('alice');
  const { json } = await world.call('POST', '/api/users/auth/create-api-key/', {
    token: user.token,
    json: { name: 'k' },
  });
  apiKey = json.key;
  dispatcher = await dispatch();
});

afterAll(async () => {
  await dispatcher.stop();
  await Promise.all(runs.map((run) => run.stop()));
  await publisher.close();
  await clickhouse.close();
  await world.close();
  server.closeAllConnections();
  server.close();
});

// Every body states the wall time.
afterEach(() => {
  const all = [...got.values()].flat();
  expect(all.filter(({ createdAt }) => Date.parse(createdAt) < startedAt)).toEqual([]);
});

async function dispatch(): Promise<Dispatcher> {
  const config = loadConfig({ ...world.env, PORT: undefined, WEBHOOK_RETRY_DELAYS: '1,1' });
  const { pool, kafka } = world;
  const found = createDispatcher({
    config,
    databaseUrl: world.env['DATABASE_URL'] ?? '',
    kafka,
    publisher,
    pool,
    clickhouse,
    egress: createEgress({ allowNetworks: config.webhookAllowNetworks, ownPorts: [] }),
    sealing: createSealing(config.secretKey ?? Buffer.alloc(32)),
    webhooks: () => servedSchema(pool, 'webhooks'),
    readServed: async (read) => await read(await servedBuilds(pool)),
    clock: suspendedClock,
    log,
    metrics: createMetrics('dispatch'),
  });
  found.done.catch((error: unknown) => process.stderr.write(`${String(error)}\n`));
  await found.start();
  return found;
}

let hooks = 0;
/** A webhook whose deliveries are found under the path that is returned. */
async function makeWebhook(
  events: readonly string[],
  subscriptions: readonly object[] = [],
): Promise<string> {
  const path = `/hook/${(hooks += 1)}`;
  const url = `http://127.0.0.1:${port}${path}`;
  const { status, json } = await world.call('POST', '/api/webhooks/', {
    token: user.token,
    json: { name: path, url, events, subscriptions },
  });
  expect(status, JSON.stringify(json)).toBe(201);
  secrets.set(path, json.secret);
  got.set(path, []);
  return path;
}

/** Sets the status of every webhook that there is. */
async function setEvery(status: 'active' | 'paused'): Promise<void> {
  const { token } = user;
  const { json } = await world.call('GET', '/api/webhooks/', { token });
  for (const { id } of json.results ?? json)
    await world.call('PATCH', `/api/webhooks/${id}/`, { token, json: { status } });
}

/** What a receiver got of an event, each delivery once: it may come more than once. */
const of = (path: string, event: string): Got[] => [
  ...new Map((got.get(path) ?? []).filter((one) => one.event === event).map((one) => [one.id, one])).values(),
];

let seq = 1000;
const accept = (block: BlockBody): ChainBlocksMessage => accepted(block, (seq += 1));
const revert = (block: BlockBody): ChainBlocksMessage => reverted(block, (seq += 1));

/** Puts messages into the log, one after the other. */
async function publish(...messages: readonly ChainBlocksMessage[]): Promise<void> {
  for (const value of messages) {
    const { height } = value.block;
    await publisher.publish(topics.chainBlocks, [
      { value, key: String(height), partition: partitionOfHeight(height) },
    ]);
  }
}

/** The chain's head as the API knows it: a webhook made now hears of what is above. */
async function sayHead(height: number): Promise<void> {
  const value = {
    type: 'head.seen' as const,
    v: 1 as const,
    height,
    hash: toFelt(BigInt(height)),
    observed_at: Date.now(),
  };
  await publisher.publish(topics.chainStatus, [{ value }]);
  await until(async () => await atEnd(world.kafka, world.pool, topics.chainStatus, ['chain-status']));
}

/** @param observedAt unix milliseconds */
async function sayPrice(
  token: Felt,
  price: string,
  observedAt: number,
  { isPast = false }: { readonly isPast?: boolean } = {},
): Promise<void> {
  const value = {
    type: 'price.observed' as const,
    v: 1 as const,
    token,
    price,
    source: 'test',
    confidence: null,
    observed_at: observedAt,
    ...(isPast ? { cause: 'backfill' as const } : {}),
  };
  await publisher.publish(topics.prices, [{ key: token, value }]);
  await until(async () => await atEnd(world.kafka, world.pool, topics.prices, ['prices', 'latest-prices']));
}

/** Every matcher has read all of the log, and nothing is left to be sent. */
async function settled(): Promise<void> {
  await until(async () => {
    for (const [matcher, topic] of [
      ['transfers', topics.chainBlocks],
      ['balances', topics.chainBlocks],
      ['launches', topics.tokens],
      ['prices', topics.prices],
    ] as const) {
      if (!(await isConsumed(world, `dispatch-${matcher}`, topic))) return false;
    }
    const { rows } = await world.pool.query(
      'SELECT 1 FROM tds.webhook_deliveries WHERE due_at IS NOT NULL LIMIT 1',
    );
    return rows.length === 0;
  });
}

const empty = (height: number, fork = 0): BlockBody => makeBlock({ height, fork, transactions: [] });
const coin = (from: Felt, to: Felt, amount: bigint): RawEvent => transferEvent(COIN, from, to, amount);
const named = (name: number, events: RawEvent[]) => ({ hash: toFelt(0x7a_0000n + BigInt(name)), events });
/** What of a transfer says which it is. */
const brief = ({ data }: Got): string =>
  [data.block, data.event_index, data.token_address, data.from_address, data.to_address, data.value].join(
    ' ',
  );

describe('transfer.created', () => {
  it('is sent to subscriptions that name its token, one of its accounts, both or neither', async () => {
    const subscriptions: [token: string, address: string][] = [
      [COIN, ''],
      ['', BOB],
      [COIN, BOB],
      ['', ''],
      [ART, CAROL],
      [RIDDLE, ''],
    ];
    const paths: string[] = [];
    for (const [token, address] of subscriptions)
      paths.push(await makeWebhook(['transfer.created'], [{ token, address }]));
    // Met by two of its subscriptions, it is sent once.
    const both = await makeWebhook(
      ['transfer.created'],
      [
        { token: COIN, address: '' },
        { token: '', address: BOB },
      ],
    );
    const none = await makeWebhook(['transfer.created']);
    const other = await makeWebhook(['balance.changed', 'token.launched'], [{ token: COIN, address: '' }]);
    const moves: [Felt, Felt, Felt, bigint][] = [
      [COIN, ALICE, BOB, 5n],
      [COIN, CAROL, DAVE, 2n ** 255n + 7n],
      [ART, BOB, CAROL, 77n],
      [RIDDLE, ALICE, DAVE, 9n],
      [STRK_TOKEN, BOB, BOB, 0n],
    ];
    const block = makeBlock({
      height: 1,
      transactions: moves.map(([token, from, to, number]) => ({
        fee: '17',
        events: [transferEvent(token, from, to, number)],
      })),
    });
    await publish(accept(block));
    await settled();

    const expected = ([token, address]: [string, string]): string[] =>
      moves.flatMap(([of, from, to, number], i) => {
        const meets =
          (token === '' || token === of) && (address === '' || address === from || address === to);
        return meets ? [[1, i, of, from, to, of === ART ? 1n : number].join(' ')] : [];
      });
    for (const [i, subscription] of subscriptions.entries()) {
      const texts = of(paths[i] ?? '', 'transfer.created').map(brief);
      expect(texts.toSorted(), subscription.join()).toEqual(expected(subscription).toSorted());
    }
    expect(of(both, 'transfer.created')).toHaveLength(4);
    expect(got.get(none)).toEqual([]);
    expect(of(other, 'transfer.created')).toEqual([]);
    const [, , art] = of(paths[3] ?? '', 'transfer.created').toSorted(
      (a, b) => a.data.event_index - b.data.event_index,
    );
    expect(art?.data).toEqual({
      token_address: ART,
      from_address: BOB,
      to_address: CAROL,
      value: '1',
      txhash: block.transactions[2]?.hash,
      block: 1,
      timestamp: block.timestamp,
      fee: '17',
      fee_unit: STRK_TOKEN,
      event_type: 'erc721',
      event_index: 2,
      nft_token_id: '77',
    });
  });

  it('distinguishes the items of a batch', async () => {
    const path = await makeWebhook(['transfer.created'], [{ token: ITEMS, address: '' }]);
    const batch = batchEvent(ITEMS, ALICE, BOB, [
      [1n, 10n],
      [1n, 10n],
      [2n, 30n],
    ]);
    await publish(accept(makeBlock({ height: 2, transactions: [{ events: [batch] }] })));
    await settled();
    const items = of(path, 'transfer.created').map(({ data }) => [
      data.event_index,
      data.nft_token_id,
      data.value,
    ]);
    expect(items.toSorted((a, b) => a[0] - b[0])).toEqual([
      [0, '1', '10'],
      [1_048_576, '1', '10'],
      [2_097_152, '2', '30'],
    ]);
  });

  it('is not sent for blocks before the webhook, repairs and replayed blocks', async () => {
    await dispatcher.stop();
    const block = (height: number): BlockBody =>
      makeBlock({ height, transactions: [{ events: [coin(ALICE, BOB, 1n)] }] });
    await publish(accept(block(3)));
    await sayHead(4);
    const path = await makeWebhook(['transfer.created', 'transfer.reverted'], [{ token: COIN, address: '' }]);
    const known = block(5);
    await publish(accept(block(4)), accept(known));
    await publish({ ...revert(known), cause: 'repair' }, { ...accept(known), cause: 'repair' });
    await publish({ ...accept(known), cause: 'replay' });
    dispatcher = await dispatch();
    await settled();
    expect(of(path, 'transfer.created').map(({ data }) => data.block)).toEqual([5]);
    for (let height = 6; height <= 20; height += 1) await publish(accept(empty(height)));
    await settled();
    expect(of(path, 'transfer.reverted')).toEqual([]);
  });
});

describe('a disabled user', () => {
  it('receives nothing of what happens meanwhile', async () => {
    const owner = user;
    const commands = {
      commands: world.commands,
      pool: world.pool,
      servedBuilds: () => servedBuilds(world.pool),
    };
    user = await world.makeUser('mallory');
    const setOwnerDisabled = async (isDisabled: boolean): Promise<void> => {
      await setDisabled(commands, 'mallory', isDisabled);
      await until(async () => await atEnd(world.kafka, world.pool, topics.commands, ['webhooks']));
    };
    const happening = (height: number): BlockBody =>
      makeBlock({ height, transactions: [{ events: [coin(ALICE, BOB, 1n)] }] });
    try {
      const paths = [
        await makeWebhook(['transfer.created'], [{ token: COIN, address: '' }]),
        await makeWebhook(['balance.changed'], [{ token: COIN, address: BOB }]),
        await makeWebhook(['price.threshold'], [{ token: DAVE, price_above: '10' }]),
      ];
      const now = Date.now();
      await sayPrice(DAVE, '1', now);
      await publish(accept(happening(21)));
      await settled();
      await setOwnerDisabled(true);
      await sayPrice(DAVE, '11', now + 1000);
      await publish(accept(happening(22)));
      await settled();
      await setOwnerDisabled(false);
      await sayPrice(DAVE, '9', now + 2000);
      await sayPrice(DAVE, '12', now + 3000);
      await publish(accept(happening(23)));
      await settled();
      const notified = paths.map(
        (path) => new Set((got.get(path) ?? []).map(({ data }) => data.block ?? data.new_price)),
      );
      expect(notified).toEqual([new Set([21, 23]), new Set([21, 23]), new Set(['12'])]);
    } finally {
      user = owner;
    }
  });
});

describe('in a reorg', () => {
  it('sends a transfer that is included again once, a changed one anew, and a removed one as reverted ten blocks later', async () => {
    const all = ['transfer.created', 'transfer.reverted'];
    const path = await makeWebhook(all, [{ token: COIN, address: '' }]);
    const deaf = await makeWebhook(['transfer.created'], [{ token: COIN, address: '' }]);
    const stays = named(1, [coin(ALICE, BOB, 10n)]);
    const moves = named(2, [coin(BOB, CAROL, 20n)]);
    const late = named(3, [coin(CAROL, DAVE, 30n)]);
    const gone = named(4, [coin(DAVE, ALICE, 40n)]);
    const changes = (amount: bigint) => named(5, [coin(ALICE, DAVE, amount)]);
    const old30 = makeBlock({ height: 30, transactions: [stays, moves, late, gone, changes(50n)] });
    const old31 = makeBlock({ height: 31, transactions: [] });
    await publish(accept(old30), accept(old31));
    await settled();
    const first = new Map(of(path, 'transfer.created').map((one) => [String(one.data.value), one.id]));
    expect([...first.keys()].toSorted()).toEqual(['10', '20', '30', '40', '50']);

    await publish(revert(old31), revert(old30));
    // Another order and other places: the transfer is the same.
    await publish(accept(makeBlock({ height: 30, fork: 1, transactions: [changes(51n), stays] })));
    await publish(accept(makeBlock({ height: 31, fork: 1, transactions: [moves] })));
    for (let height = 32; height <= 38; height += 1) await publish(accept(empty(height, 1)));
    await publish(accept(makeBlock({ height: 39, fork: 1, transactions: [late] })));
    await settled();
    const created = of(path, 'transfer.created');
    expect(created.map(({ data }) => String(data.value)).toSorted()).toEqual([
      '10',
      '20',
      '30',
      '40',
      '50',
      '51',
    ]);
    expect(of(path, 'transfer.reverted')).toEqual([]);

    await publish(accept(empty(40, 1)));
    await settled();
    const lost = of(path, 'transfer.reverted').toSorted((a, b) => a.data.value - b.data.value);
    expect(lost.map(({ data }) => String(data.value))).toEqual(['40', '50']);
    expect(lost[0]?.data).toEqual(created.find(({ data }) => data.value === '40')?.data);
    for (const { data, id } of lost) expect(id).not.toBe(first.get(data.value));
    expect(of(deaf, 'transfer.reverted')).toEqual([]);

    // Included after all: sent only to the webhooks that were notified of its removal.
    await publish(accept(makeBlock({ height: 41, fork: 1, transactions: [gone] })));
    for (let height = 42; height <= 60; height += 1) await publish(accept(empty(height, 1)));
    await settled();
    const again = of(path, 'transfer.created').filter(({ data }) => data.value === '40');
    expect(again.map(({ data }) => data.block)).toEqual([30, 41]);
    expect(new Set(again.map(({ id }) => id)).size).toBe(2);
    expect(of(deaf, 'transfer.created').filter(({ data }) => data.value === '40')).toHaveLength(1);
    expect(of(path, 'transfer.reverted')).toHaveLength(2);
    expect(of(path, 'transfer.created')).toHaveLength(7);
  });

  it('does not revert a transfer that is included again below the start of the webhook', async () => {
    await sayHead(70);
    // Nobody else has anything looked at below.
    await setEvery('paused');
    const path = await makeWebhook(['transfer.created', 'transfer.reverted'], [{ token: COIN, address: '' }]);
    const moves = named(21, [coin(ALICE, BOB, 61n)]);
    const old70 = empty(70);
    const old71 = makeBlock({ height: 71, transactions: [moves] });
    await publish(accept(old70), accept(old71));
    await publish(revert(old71), revert(old70));
    await publish(accept(makeBlock({ height: 70, fork: 1, transactions: [moves] })));
    for (let height = 71; height <= 85; height += 1) await publish(accept(empty(height, 1)));
    await settled();
    expect(of(path, 'transfer.created').map(({ data }) => data.block)).toEqual([71]);
    expect(of(path, 'transfer.reverted')).toEqual([]);
    await setEvery('active');
  });

  it('ignores what a previous lease holder publishes after its successor', async () => {
    const path = await makeWebhook(['transfer.created', 'transfer.reverted'], [{ token: COIN, address: '' }]);
    const [lateAccept, lateRevert] = [(seq += 1), (seq += 1)];
    const replaced = makeBlock({ height: 90, transactions: [named(41, [coin(ALICE, BOB, 71n)])] });
    const kept = makeBlock({ height: 90, fork: 1, transactions: [named(42, [coin(ALICE, BOB, 72n)])] });
    await publish(accept(kept), accepted(replaced, lateAccept), reverted(kept, lateRevert));
    for (let height = 91; height <= 105; height += 1) await publish(accept(empty(height, 1)));
    await settled();
    expect(of(path, 'transfer.created').map(({ data }) => String(data.value))).toEqual(['72']);
    expect(of(path, 'transfer.reverted')).toEqual([]);
  });

  it('sends a transfer once that moves to another partition', async () => {
    const path = await makeWebhook(['transfer.created', 'transfer.reverted'], [{ token: COIN, address: '' }]);
    const [one, other] = [named(11, [coin(ALICE, BOB, 1n)]), named(12, [coin(ALICE, BOB, 2n)])];
    const old1023 = makeBlock({ height: 1023, transactions: [one] });
    const old1024 = makeBlock({ height: 1024, transactions: [other] });
    await publish(accept(old1023), accept(old1024));
    await settled();
    await publish(revert(old1024), revert(old1023));
    await publish(accept(makeBlock({ height: 1023, fork: 1, transactions: [other] })));
    await publish(accept(makeBlock({ height: 1024, fork: 1, transactions: [one] })));
    for (let height = 1025; height <= 1045; height += 1) await publish(accept(empty(height, 1)));
    await settled();
    expect(
      of(path, 'transfer.created')
        .map(({ data }) => String(data.value))
        .toSorted(),
    ).toEqual(['1', '2']);
    expect(of(path, 'transfer.reverted')).toEqual([]);
  });
});

const number = (text: string | null): number | null => (text === null ? null : Number(text));

/** Nothing was ever moved to or from them before. */
const [ERIN, FRANK, GRACE] = [0xe41n, 0xf4a2cn, 0x94acen].map(toFelt) as [Felt, Felt, Felt];

describe('balance.changed', () => {
  it('agrees with the balance history, transfer by transfer', async () => {
    const path = await makeWebhook(
      ['balance.changed'],
      [
        { token: COIN, address: '' },
        { token: '', address: ERIN },
      ],
    );
    const transactions = [
      { events: [coin(ZERO_FELT, ERIN, 1000n), coin(ERIN, FRANK, 100n), coin(FRANK, ERIN, 30n)] },
      { events: [coin(ERIN, ERIN, 5n), transferEvent(ART, ZERO_FELT, ERIN, 3n), coin(FRANK, GRACE, 0n)] },
      { events: [transferEvent(STRK_TOKEN, ZERO_FELT, FRANK, 8n)] },
    ];
    // Every height from 0 on, so that the ledger alone tells the balances.
    const missing = [0, ...Array.from({ length: 1100 }, (_, i) => i + 1)];
    const { rows } = await world.pool.query<{ height: number }>('SELECT height FROM tds.dispatch_blocks');
    const there = new Set([1, 2, 3, ...rows.map(({ height }) => height)]);
    await publisher.publish(
      topics.chainBlocks,
      missing
        .filter((height) => !there.has(height) && height <= 1045)
        .map((height) => ({
          value: accept(empty(height, 2)),
          key: String(height),
          partition: partitionOfHeight(height),
        })),
    );
    const block = makeBlock({ height: 1046, transactions });
    // One price before the block, and one after it.
    await sayPrice(COIN, '0.25', block.timestamp * 1000 - 1000);
    await sayPrice(COIN, '4', block.timestamp * 1000 + 1000);
    await publish(accept(block));
    await settled();
    const sent = of(path, 'balance.changed');
    const key = (account: string, token: string): string => `${account} ${token}`;
    const pairs = new Set(sent.map(({ data }) => key(data.account_address, data.token_address)));
    expect([...pairs].toSorted()).toEqual([key(ERIN, COIN), key(FRANK, COIN), key(ERIN, ART)].toSorted());
    for (const pair of pairs) {
      const [account, token] = pair.split(' ');
      const { json } = await world.call(
        'GET',
        `/api/balance-history/?account_address=${account}&token_address=${token}&start_time=2023-01-01&end_time=2027-01-01`,
        { headers: { 'api-key': apiKey } },
      );
      const history = json.data.filter((row: { block_number: number }) => row.block_number === 1046);
      const notified = sent
        .filter(({ data }) => key(data.account_address, data.token_address) === pair)
        .toSorted((a, b) => a.data.event_index - b.data.event_index);
      const moved = history.filter((row: { event_index: number }) =>
        notified.some(({ data }) => data.event_index === row.event_index),
      );
      expect(notified.length, pair).toBeGreaterThan(0);
      expect(
        notified.map(({ data }) => [
          data.event_index,
          data.balance,
          number(data.token_price_usd),
          number(data.balance_usd),
        ]),
      ).toEqual(
        moved.map((row: HistoryRow) => [row.event_index, row.balance, row.token_price_usd, row.balance_usd]),
      );
      for (const { data } of notified)
        expect(BigInt(data.previous_balance) + BigInt(data.change)).toBe(BigInt(data.balance));
    }
    const alice = sent.filter(
      ({ data }) => key(data.account_address, data.token_address) === key(ERIN, COIN),
    );
    expect(alice.map(({ data }) => String(data.change)).toSorted()).toEqual(['-100', '1000', '30']);
  });
});

describe('balance.changed in a fork', () => {
  const HEIDI = toFelt(0x4e1d1n);
  /** Of Heidi's alone: what came, in its order. */
  const notified = (path: string): string[] =>
    of(path, 'balance.changed').map(({ data }) => String(data.balance));

  it('is sent again where another balance was sent meanwhile, and not where it is included again unchanged', async () => {
    const path = await makeWebhook(['balance.changed'], [{ token: COIN, address: HEIDI }]);
    const gets = (name: number, amount: bigint) => named(name, [coin(ZERO_FELT, HEIDI, amount)]);
    const [ten, seven, two] = [gets(31, 10n), gets(32, 7n), gets(33, 2n)];
    const at = (height: number, fork: number, ...transactions: ReturnType<typeof gets>[]): BlockBody =>
      makeBlock({ height, fork, transactions });
    const step = async (...messages: ChainBlocksMessage[]): Promise<void> => {
      await publish(...messages);
      await settled();
    };
    const [a, b] = [at(1047, 0, ten), at(1047, 1, seven)];
    await step(accept(a));
    await step(revert(a), accept(b));
    expect(notified(path)).toEqual(['10', '7']);
    await step(revert(b), accept(a));
    expect(notified(path)).toEqual(['10', '7', '10']);
    await step(revert(a), accept(b));
    await step(revert(b), accept(a));
    expect(notified(path)).toEqual(['10', '7', '10', '7', '10']);

    // Two blocks that land again as they were are no news, whichever of them is read first.
    const above = at(1048, 0, two);
    await step(accept(above));
    await step(revert(above), revert(a), accept(at(1047, 2, ten)));
    await step(accept(at(1048, 2, two)));
    expect(notified(path)).toEqual(['10', '7', '10', '7', '10', '12']);
    expect(new Set((got.get(path) ?? []).map(({ id }) => id)).size).toBe(6);
  });
});

describe('balance.changed while the ingester replaces blocks', () => {
  const IVAN = toFelt(0x17a4n);
  const gets = (height: number, fork: number, amount: bigint): BlockBody =>
    makeBlock({ height, fork, transactions: [named(height + fork, [coin(ZERO_FELT, IVAN, amount)])] });
  const projected = async (): Promise<void> =>
    await until(async () =>
      atEnd(world.kafka, world.pool, topics.chainBlocks, ['account-ledger', 'indexed-blocks']),
    );

  beforeAll(async () => {
    await world.pool.query(
      `INSERT INTO tds.chunks (name, range_start, range_end, cursor, final_height) VALUES ('reorg', 1049, 1052, 1053, 1048)`,
    );
  });
  afterAll(async () => {
    await world.pool.query(`DELETE FROM tds.recorded_blocks WHERE chunk = 'reorg'`);
    await world.pool.query(`DELETE FROM tds.chunks WHERE name = 'reorg'`);
  });
  /** Records a block as the ingester does. */
  const record = async ({ height, hash }: BlockBody, intent: 'accept' | 'revert'): Promise<void> => {
    await world.pool.query(
      `INSERT INTO tds.recorded_blocks (chunk, height, hash, parent_hash, intent, maps, body)
       VALUES ('reorg', $1, $2, '0x1', $3, '[]', '')
       ON CONFLICT (chunk, height) DO UPDATE SET hash = excluded.hash, intent = excluded.intent`,
      [height, hash, intent],
    );
  };

  it('is not sent of a block that is marked for revert: a reorg changes the ledger before the index', async () => {
    const path = await makeWebhook(['balance.changed'], [{ token: COIN, address: IVAN }]);
    const [lost, kept] = [gets(1049, 0, 10n), gets(1049, 1, 7n)];
    await record(lost, 'revert');
    await publish(accept(lost));
    await projected();
    await systemClock.sleep(1000);
    expect(of(path, 'balance.changed')).toEqual([]);
    await record(kept, 'accept');
    await publish(revert(lost), accept(kept));
    await settled();
    expect(of(path, 'balance.changed').map(({ data }) => data.balance)).toEqual(['7']);
  });

  it('is sent of a block that stays, without newer chain reads at blocks marked for revert', async () => {
    const path = await makeWebhook(['balance.changed'], [{ token: COIN, address: IVAN }]);
    const stays = gets(1050, 0, 5n);
    const lost = [empty(1051), empty(1052)];
    await dispatcher.stop();
    await record(stays, 'accept');
    for (const block of lost) await record(block, 'revert');
    await publish(accept(stays), ...lost.map(accept));
    await publisher.publish(
      topics.balances,
      lost.map(({ height, hash }) => ({
        key: `${IVAN}:${COIN}`,
        value: {
          type: 'balance.observed' as const,
          v: 1 as const,
          account: IVAN,
          token: COIN,
          block: height,
          block_hash: hash,
          observed_at: Date.now(),
          requested_at: height,
          l1_height: null,
          balance: '999',
        },
      })),
    );
    await projected();
    await until(async () => await atEnd(world.kafka, world.pool, topics.balances, ['balances']));
    dispatcher = await dispatch();
    await settled();
    expect(of(path, 'balance.changed').map(({ data }) => data.balance)).toEqual(['12']);
  });
});

describe('balance.changed after a late revert of a previous lease holder', () => {
  const JUDY = toFelt(0x10d7n);

  it('is not sent again where it is included again unchanged', async () => {
    const path = await makeWebhook(['balance.changed'], [{ token: COIN, address: JUDY }]);
    const gets = (name: number, amount: bigint) => named(name, [coin(ZERO_FELT, JUDY, amount)]);
    const late = (seq += 1);
    const first = makeBlock({ height: 1053, transactions: [gets(51, 10n)] });
    const above = makeBlock({ height: 1054, transactions: [gets(52, 2n)] });
    const again = makeBlock({ height: 1053, fork: 1, transactions: [gets(51, 10n)] });
    for (const message of [accept(first), reverted(first, late), accept(above)]) {
      await publish(message);
      await settled();
    }
    await publish(revert(above), revert(first), accept(again));
    await settled();
    expect(of(path, 'balance.changed').map(({ data }) => String(data.balance))).toEqual(['10', '12']);
  });
});

describe('token.launched', () => {
  const describe_ = (token: Felt, height: number, standard: 'erc20' | 'unknown') => ({
    key: token,
    value: {
      type: 'token.described' as const,
      v: 1 as const,
      token,
      standard,
      class_hash: null,
      name: 'Coin',
      symbol: null,
      decimals: null,
      block: height,
      observed_at: 1,
    },
  });

  it('is sent once, for a token first seen above the start of the webhook', async () => {
    await sayHead(2000);
    const paths = [
      await makeWebhook(['token.launched']),
      await makeWebhook(['token.launched'], [{ token: COIN, address: '' }]),
      await makeWebhook(['token.launched'], [{ token: ART, address: '' }]),
    ];
    const event = transferEvent(COIN, ZERO_FELT, ALICE, 1n);
    const block = makeBlock({ height: 2001, transactions: [{ events: [] }, { events: [event] }] });
    await publish(accept(block));
    await publisher.publish(topics.tokens, [
      describe_(COIN, 2001, 'erc20'),
      describe_(ART, 2000, 'erc20'),
      describe_(RIDDLE, 2001, 'unknown'),
      describe_(COIN, 2001, 'erc20'),
    ]);
    await settled();
    const launches = paths.map((path) => of(path, 'token.launched'));
    expect(launches.map((list) => list.length)).toEqual([1, 1, 0]);
    expect(launches[0]?.[0]?.data).toEqual({
      token_address: COIN,
      symbol: '',
      name: 'Coin',
      decimals: 18,
      logo: null,
      is_erc20: true,
      is_erc721: false,
      is_erc1155: false,
      verified: false,
      block: 2001,
      txhash: block.transactions[1]?.hash,
      timestamp: block.timestamp,
    });
  });

  it('is not sent for a description that only a repair led to', async () => {
    await sayHead(2010);
    const path = await makeWebhook(['token.launched']);
    await publish(accept(empty(2011)));
    const { key, value } = describe_(ITEMS, 2011, 'erc20');
    await publisher.publish(topics.tokens, [
      { key, value: { ...value, cause: 'repair' } },
      describe_(RIDDLE, 2011, 'erc20'),
    ]);
    await settled();
    expect(of(path, 'token.launched').map(({ data }) => data.token_address)).toEqual([RIDDLE]);
  });
});

describe('price.threshold', () => {
  let at = Date.now();
  const say = async (token: Felt, price: string, observedAt = (at += 1000)): Promise<void> => {
    await sayPrice(token, price, observedAt);
    await settled();
  };

  it('fires when the price crosses a threshold, and not while it stays beyond it', async () => {
    await say(COIN, '0.5');
    const path = await makeWebhook(
      ['price.threshold'],
      [
        { token: COIN, address: '', price_above: '1.50', price_below: '0.4' },
        { token: COIN, address: '', price_below: '1' },
        { token: ART, address: '', price_above: '1' },
      ],
    );
    const firedAt = async (price: string, observedAt?: number): Promise<unknown[]> => {
      const before = of(path, 'price.threshold').length;
      await say(COIN, price, observedAt);
      return of(path, 'price.threshold')
        .slice(before)
        .map(({ data }) => [
          data.previous_price,
          data.new_price,
          data.crossed_above,
          data.crossed_below,
          data.threshold_above,
          data.threshold_below,
        ])
        .toSorted((a, b) => a.join().localeCompare(b.join()));
    };
    expect(await firedAt('1.4999999999999999999999')).toEqual([]);
    expect(await firedAt('1.5')).toEqual([['1.4999999999999999999999', '1.5', true, false, '1.50', '0.4']]);
    expect(await firedAt('1.6')).toEqual([]);
    expect(await firedAt('1.5')).toEqual([]);
    expect(await firedAt('1.5')).toEqual([]);
    expect(await firedAt('1')).toEqual([['1.5', '1', false, true, '', '1']]);
    expect(await firedAt('2')).toEqual([['1', '2', true, false, '1.50', '0.4']]);
    // Older than what is known: history that is read in late moves nothing.
    expect(await firedAt('0.1', at - 500)).toEqual([]);
    expect(await firedAt('0.4')).toEqual([
      ['2', '0.4', false, true, '', '1'],
      ['2', '0.4', false, true, '1.50', '0.4'],
    ]);
    expect(await firedAt('0.4')).toEqual([]);
  });

  it('does not fire on past prices that are published late, and fires on a late reading of the feed', async () => {
    const now = Date.now();
    await sayPrice(CAROL, '1', now - 30 * 86_400_000);
    const path = await makeWebhook(['price.threshold'], [{ token: CAROL, address: '', price_above: '2' }]);
    for (const [price, hours] of [
      ['1.5', 3],
      ['3', 2],
      ['0.5', 1],
    ] as const)
      await sayPrice(CAROL, price, now - hours * 3_600_000, { isPast: true });
    await sayPrice(CAROL, '2.5', now - 2 * 86_400_000);
    await settled();
    expect(of(path, 'price.threshold').map(({ data }) => [data.previous_price, data.new_price])).toEqual([
      ['1', '2.5'],
    ]);
  });
});

it('has sent every delivery, none under two ids', async () => {
  for (const [path, list] of got) {
    const ids = new Map<string, string>();
    for (const { id, event, data } of list) {
      const text = `${event} ${JSON.stringify(data)}`;
      expect(ids.get(text) ?? id, path).toBe(id);
      ids.set(text, id);
      // A balance may be notified once more where another one of its pair was notified since.
      if (event !== 'balance.changed') continue;
      const pair = `"account_address":"${data.account_address}","token_address":"${data.token_address}"`;
      for (const other of ids.keys()) if (other !== text && other.includes(pair)) ids.delete(other);
    }
  }
  const { rows } = await world.pool.query<{ n: number }>(
    'SELECT count(*)::int AS n FROM tds.webhook_deliveries',
  );
  const received = [...got.values()].flat();
  expect(new Set(received.map(({ id }) => id)).size).toBe(rows[0]?.n);
  // Every receiver answered at once, so nothing was to be sent again.
  const again = await world.pool.query(
    'SELECT event, attempts, error FROM tds.webhook_deliveries WHERE attempts <> 1',
  );
  expect(again.rows).toEqual([]);
  expect(received.length).toBe(rows[0]?.n);
});
