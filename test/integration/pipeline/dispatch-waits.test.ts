import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';

import { systemClock } from '../../../infra/clock.ts';
import { raisedAlarms } from '../../../infra/health/service-health.ts';
import type { Publisher } from '../../../infra/kafka/client.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import type { Registry } from '../../../infra/metrics.ts';
import { createSealing } from '../../../infra/sealing.ts';
import { createDispatcher } from '../../../pipeline/dispatch/dispatcher.ts';
import type { Dispatcher } from '../../../pipeline/dispatch/dispatcher.ts';
import { createEgress } from '../../../pipeline/egress/egress.ts';
import { accountLedger } from '../../../projections/account-ledger/projector.ts';
import { balances } from '../../../projections/balances/projector.ts';
import { withNames } from '../../../projections/define.ts';
import type { ProjectionRun } from '../../../projections/engine/run/lifetime.ts';
import { runClickHouseProjections } from '../../../projections/engine/run/clickhouse-runner.ts';
import { runPostgresProjection } from '../../../projections/engine/run/postgres-runner.ts';
import { chainProjections } from '../../../projections/index.ts';
import { prices } from '../../../projections/prices/projector.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { unmovedBalances } from '../../../projections/unmoved-balances/projector.ts';
import { tokensByAddress } from '../../../projections/tokens/queries.ts';
import { tokens } from '../../../projections/tokens/projector.ts';
import { webhooks } from '../../../projections/webhooks/projector.ts';
import { ZERO_FELT, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { BlockAccepted, BlockBody, RawEvent } from '../../../schemas/messages/chain-blocks.ts';
import type { TokenStandard } from '../../../schemas/messages/common.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import { webhookBody } from '../../../schemas/webhooks/events.ts';
import {
  ART,
  COIN,
  ITEMS,
  accepted,
  batchEvent,
  makeBlock,
  transferEvent,
} from '../../support/chain-messages.ts';
import { projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';
import { messagesOf } from '../../support/topic.ts';

/** Dispatchers that wait for projections: what a stop, and what a halt in the meantime leaves behind. Real stores. */

const SCHEMA = 'model';
/** Of a webhook for every event and subject; it never expires, and its receiver cannot be reached. */
const WEBHOOK = 1;
const ALICE = toFelt(0xa11cen);
const RECLASSIFIED = toFelt(0x4ec1n);
const withReclassified = (message: BlockAccepted): BlockAccepted => ({
  ...message,
  contracts: { ...message.contracts, [RECLASSIFIED]: { standard: 'erc20', class_hash: null } },
});

let world: ProjectionWorld;
let publisher: Publisher;
const runs: ProjectionRun[] = [];
let ledger: ProjectionRun | null = null;
let dispatcher: { stop(): Promise<void>; readonly metrics: Registry } | null = null;
/** The projector of the ledger throws at this height. */
let poison = -1;

beforeAll(async () => {
  world = await projectionWorld();
  const { pool, kafka, clickhouse, log, metrics } = world;
  publisher = kafka.publisher();
  await pool.query(`CREATE SCHEMA ${SCHEMA}`);
  await pool.query(withNames(webhooks.ddl, { schema: SCHEMA }));
  await pool.query(
    `INSERT INTO ${SCHEMA}.webhooks (id, user_id, name, url, events, status, created_at, updated_at, activation, secret, from_block)
     VALUES ($1, 1, 'all', 'http://127.0.0.2/', '{transfer.created,balance.changed,token.launched}', 'active', 0, 0, 1, 'sealed', -1)`,
    [WEBHOOK],
  );
  await pool.query(
    `INSERT INTO ${SCHEMA}.webhook_subscriptions (id, webhook_id, token, address, price_above, price_below)
     VALUES (1, $1, '', '', '', '')`,
    [WEBHOOK],
  );
  const common = { kafka, pool, log, metrics };
  runs.push(
    await runPostgresProjection({ ...common, projection: tokens, groupId: 'tokens' }),
    await runPostgresProjection({ ...common, projection: balances, groupId: 'balances' }),
    await runPostgresProjection({ ...common, projection: unmovedBalances, groupId: 'unmoved-balances' }),
    await runClickHouseProjections({ ...common, clickhouse, projections: [prices], groupId: 'prices' }),
  );
});
afterAll(async () => {
  await dispatcher?.stop();
  for (const run of runs) await run.stop();
  await publisher?.close();
  await world?.close();
});

const stubborn = {
  ...accountLedger,
  project: (item: Parameters<typeof accountLedger.project>[0]) => {
    if (item.message.block.height === poison) throw new Error('cannot be projected');
    return accountLedger.project(item);
  },
};

async function project(): Promise<void> {
  ledger = await world.run({
    projections: [stubborn, ...chainProjections.filter(({ name }) => name !== 'account-ledger')],
  });
}

async function stopProjecting(): Promise<void> {
  await ledger?.stop();
  ledger = null;
}

async function dispatch(): Promise<void> {
  const { pool, kafka, clickhouse, log } = world;
  const metrics = createMetrics('dispatch');
  const found: Dispatcher = createDispatcher({
    config: {
      webhookRetryDelays: [3600],
      webhookTimeoutMs: 100,
      webhookDisableAfter: 1000,
      webhookConcurrency: 1,
      webhookEndpointConcurrency: 1,
      webhookHistoryDays: 30,
      webhookMaxDeliveries: 1_000_000,
      webhookMaxDeliveriesPerUser: 1_000_000,
    },
    databaseUrl: world.env['DATABASE_URL'] ?? '',
    kafka,
    publisher,
    pool,
    clickhouse,
    egress: createEgress({ allowNetworks: [], ownPorts: [] }),
    sealing: createSealing(Buffer.alloc(32)),
    webhooks: async () => SCHEMA,
    readServed: async (read) => await read(await servedBuilds(pool)),
    // Of a machine that was suspended for an hour.
    clock: { ...systemClock, now: () => systemClock.now() - 3_600_000 },
    log,
    metrics,
  });
  await found.start();
  dispatcher = { stop: () => found.stop(), metrics };
}

async function stopDispatching(): Promise<void> {
  await dispatcher?.stop();
  dispatcher = null;
}

/** Bodies of one event that were made so far, by height. */
async function bodies(event: string): Promise<ReadonlyMap<number, Record<string, unknown>>> {
  const { rows } = await world.pool.query<{ body: string }>(
    'SELECT body FROM tds.webhook_deliveries WHERE event = $1 AND webhook_id = $2',
    [event, WEBHOOK],
  );
  return new Map(
    rows.map(({ body }) => {
      const { data } = webhookBody.parse(JSON.parse(body));
      return ['block' in data ? (data.block ?? -1) : -1, data];
    }),
  );
}

const checkpointOf = async (matcher: string, partition: number): Promise<number> => {
  const { rows } = await world.pool.query<{ next_offset: number }>(
    "SELECT next_offset FROM tds.checkpoints WHERE consumer = 'dispatch-' || $1 AND partition = $2",
    [matcher, partition],
  );
  return rows[0]?.next_offset ?? -1;
};

const metricRow = z.object({
  value: z.number(),
  labels: z.object({ matcher: z.string(), partition: z.coerce.number() }),
});
/** A gauge of one matcher and partition. */
async function gauge(name: string, matcher: string, partition: number): Promise<number | undefined> {
  const found = await dispatcher?.metrics.getSingleMetric(name)?.get();
  return z
    .array(metricRow)
    .parse(found?.values ?? [])
    .find(({ labels }) => labels.matcher === matcher && labels.partition === partition)?.value;
}
const behind = async (matcher: string, partition: number): Promise<number> =>
  (await gauge('tds_webhook_messages_behind', matcher, partition)) ?? 0;

let seq = 0;
async function publishBlocks(...blocks: readonly BlockBody[]): Promise<void> {
  await publisher.publish(
    topics.chainBlocks,
    blocks.map((block) => ({
      value: withReclassified(accepted(block, (seq += 1))),
      key: String(block.height),
      partition: partitionOfHeight(block.height),
    })),
  );
}

const block = (height: number, ...events: RawEvent[]): BlockBody =>
  makeBlock({ height, transactions: events.length === 0 ? [] : [{ events }] });
const mint = (amount: bigint): RawEvent => transferEvent(COIN, ZERO_FELT, ALICE, amount);

async function describeToken(token: Felt, height: number, standard: TokenStandard = 'erc20'): Promise<void> {
  const value = {
    type: 'token.described' as const,
    v: 1 as const,
    token,
    standard,
    class_hash: null,
    name: 'Coin',
    symbol: 'C',
    decimals: 6,
    block: height,
    observed_at: 1,
  };
  await publisher.publish(topics.tokens, [{ key: token, value }]);
}

describe('a dispatcher that is stopped while it waits', () => {
  it('sends balance.changed after a restart when the ledger had not projected the block', async () => {
    // The read models exist, and then nobody fills them.
    await project();
    await publishBlocks(block(0));
    await world.settled();
    await stopProjecting();
    await publishBlocks(block(1, mint(10n)), block(2, mint(5n)));
    await dispatch();
    await until(async () => (await behind('balances', 0)) > 0);
    await until(async () => (await bodies('transfer.created')).size === 2);
    await stopDispatching();
    expect((await bodies('balance.changed')).size).toBe(0);
    expect(await checkpointOf('balances', 0)).toBeLessThan(2);

    await project();
    await dispatch();
    await until(async () => (await bodies('balance.changed')).size === 2);
    const found = await bodies('balance.changed');
    expect(found.get(1)).toMatchObject({ balance: '10', previous_balance: '0', change: '10' });
    expect(found.get(2)).toMatchObject({ balance: '15', previous_balance: '10', change: '5' });
    await stopDispatching();
  });

  it('sends token.launched with transaction and time when its block is indexed later', async () => {
    const launched = block(3, mint(1n));
    await stopProjecting();
    await publishBlocks(launched);
    await describeToken(COIN, 3);
    const isPaused = async (): Promise<boolean> => {
      const partitions = await world.kafka.offsets(topics.tokens);
      const paused = await Promise.all(
        partitions.map(({ partition }) => gauge('tds_webhook_matcher_paused', 'launches', partition)),
      );
      return paused.includes(1);
    };
    await dispatch();
    await until(isPaused);
    await stopDispatching();
    expect((await bodies('token.launched')).size).toBe(0);

    await dispatch();
    await until(isPaused);
    await project();
    await until(async () => (await bodies('token.launched')).has(3));
    expect((await bodies('token.launched')).get(3)).toMatchObject({
      token_address: COIN,
      txhash: launched.transactions[0]?.hash,
      timestamp: launched.timestamp,
    });
  });
});

it('names the transaction of a token whose only event is malformed', async () => {
  // The low half of the amount does not fit into 128 bits.
  const malformed = { ...transferEvent(ART, ZERO_FELT, ALICE, 1n), data: [toFelt(2n ** 128n), ZERO_FELT] };
  const first = makeBlock({ height: 4, transactions: [{ events: [] }, { events: [malformed] }] });
  await publishBlocks(first);
  await describeToken(ART, 4);
  await until(async () => (await bodies('token.launched')).has(4));
  expect((await bodies('token.launched')).get(4)).toMatchObject({
    token_address: ART,
    block: 4,
    txhash: first.transactions[1]?.hash,
    timestamp: first.timestamp,
  });
});

describe('a halt of the ledger', () => {
  const halted = partitionOfHeight(1024);
  const isPaused = async (): Promise<boolean> =>
    (await gauge('tds_webhook_matcher_paused', 'balances', halted)) === 1;
  const alarms = async (): Promise<string[]> =>
    (await raisedAlarms(world.pool))
      .filter(({ name }) => name.startsWith('webhooks.waiting:'))
      .map(({ name, detail }) => `${name} ${detail}`);

  it('pauses balance.changed of its partition only, and raises an alarm', async () => {
    await publishBlocks(...Array.from({ length: 1021 - 5 }, (_, i) => block(5 + i)));
    await world.settled();
    poison = 1024;
    await publishBlocks(block(1024), block(1025, mint(100n)));
    await until(isPaused);
    await until(async () => (await bodies('transfer.created')).has(1025));
    await publishBlocks(block(1021, mint(7n)));
    await until(async () => (await bodies('balance.changed')).has(1021));
    expect((await bodies('balance.changed')).get(1021)).toMatchObject({ balance: '23', change: '7' });
    expect((await bodies('balance.changed')).has(1025)).toBe(false);
    expect(await checkpointOf('balances', halted)).toBe(1);
    await until(async () => (await alarms()).length === 1);
    expect(await alarms()).toEqual([
      `webhooks.waiting:balances:chain.blocks:${halted} offset 1 waits: account-ledger is halted at chain.blocks:${halted}:0: projecting failed: cannot be projected`,
    ]);
  });

  it('also pauses the next dispatcher', async () => {
    await stopDispatching();
    await dispatch();
    await until(isPaused);
    expect(await checkpointOf('balances', halted)).toBe(1);
    await until(async () => (await alarms()).length === 1);
  });

  it('loses no event: all are sent once the ledger continues', async () => {
    await publishBlocks(block(1022), block(1023), block(1026, mint(1000n)));
    poison = -1;
    await world.pool.query('DELETE FROM tds.projection_halts');
    await until(async () => (await bodies('balance.changed')).has(1026));
    const found = await bodies('balance.changed');
    expect(found.get(1025)).toMatchObject({ balance: '123', previous_balance: '23', change: '100' });
    expect(found.get(1026)).toMatchObject({ balance: '1123', previous_balance: '123', change: '1000' });
    expect(await isPaused()).toBe(false);
    expect(await alarms()).toEqual([]);
    await until(async () => (await checkpointOf('balances', halted)) === 3);
  });
});

it('sends no balance of a token whose earlier blocks are still to be repaired', async () => {
  await describeToken(RECLASSIFIED, 1000, 'unknown');
  await until(async () => {
    const schema = (await servedBuilds(world.pool)).schema('tokens');
    return (await tokensByAddress(world.pool, schema, [RECLASSIFIED])).size === 1;
  });
  await publishBlocks(block(1027, transferEvent(RECLASSIFIED, ZERO_FELT, ALICE, 5n)));
  await until(async () => (await bodies('balance.changed')).has(1027));
  expect((await bodies('balance.changed')).get(1027)).toMatchObject({ balance: null, change: '5' });
});

it('waits for blocks that the log has between a block and the newest indexed one', async () => {
  await stopDispatching();
  await publishBlocks(block(1028, mint(1n)), block(2048));
  await world.settled();
  await stopProjecting();
  await publishBlocks(...Array.from({ length: 1019 }, (_, i) => block(1029 + i)));
  await dispatch();
  await until(async () => (await gauge('tds_webhook_matcher_paused', 'balances', 1)) === 1);
  expect((await bodies('balance.changed')).has(1028)).toBe(false);
  await project();
  await until(async () => (await bodies('balance.changed')).has(1028));
  expect((await bodies('balance.changed')).get(1028)).toMatchObject({
    balance: '1124',
    previous_balance: '1123',
  });
});

/** The requests of balances so far, by account. */
async function requested(): Promise<ReadonlyMap<Felt, number>> {
  const found = new Map<Felt, number>();
  for (const request of await messagesOf(world.kafka, topics.requests))
    if (request.type === 'balance.requested') found.set(request.account, request.requested_at);
  return found;
}

async function untilRequested(account: Felt): Promise<number> {
  await until(async () => (await requested()).has(account));
  return (await requested()).get(account) ?? 0;
}

/** What the observer publishes of a pair of the coin, read at a block. */
async function publishRead(
  account: Felt,
  { height, hash }: BlockBody,
  requestedAt: number,
  read: { type: 'balance.observed'; balance: string } | { type: 'balance.refused'; reason: string },
): Promise<void> {
  const common = { v: 1 as const, account, token: COIN, block: height, block_hash: hash, l1_height: null };
  const value = { ...common, observed_at: requestedAt, requested_at: requestedAt, ...read };
  await publisher.publish(topics.balances, [{ key: `${account}:${COIN}`, value }]);
}

it('sends a balance that was being read from the chain when the dispatcher stopped', async () => {
  const publishedAt = Date.now();
  // Nothing is indexed between, so the ledger alone does not know what was there.
  const far = block(5000, mint(9n));
  await publishBlocks(far);
  expect(await untilRequested(ALICE)).toBeGreaterThanOrEqual(publishedAt);
  await stopDispatching();
  expect((await bodies('balance.changed')).has(5000)).toBe(false);

  await publishRead(ALICE, far, 1, { type: 'balance.observed', balance: '77' });
  await dispatch();
  await until(async () => (await bodies('balance.changed')).has(5000));
  expect((await bodies('balance.changed')).get(5000)).toMatchObject({
    balance: '77',
    previous_balance: '68',
  });
});

describe('a balance that cannot be known', () => {
  // Nothing is known of them but what the chain answers.
  const [BOB, CAROL] = [toFelt(0xb0bn), toFelt(0xca401n)];
  const mintTo = (account: Felt): RawEvent => transferEvent(COIN, ZERO_FELT, account, 9n);
  const sent = async (height: number, ms?: number): Promise<unknown> => {
    await until(async () => (await bodies('balance.changed')).has(height), ms);
    return (await bodies('balance.changed')).get(height)?.['balance'];
  };
  it('is not waited for where its contract has no balance of an account', async () => {
    await publishBlocks(block(5001, batchEvent(ITEMS, ZERO_FELT, ALICE, [[1n, 9n]])));
    expect(await sent(5001, 7000)).toBe(null);
  });

  it('is not waited for where the log lacks blocks above it', async () => {
    await publishBlocks(block(2049, mint(9n)));
    expect(await sent(2049, 7000)).toBe(null);
  });

  it('is not waited for once the contract has refused it', async () => {
    const refused = block(5002, mintTo(BOB));
    await publishBlocks(refused);
    const requestedAt = await untilRequested(BOB);
    await publishRead(BOB, refused, requestedAt, { type: 'balance.refused', reason: 'no' });
    expect(await sent(5002, 7000)).toBe(null);
  });

  it('leaves the balances of later blocks known', async () => {
    const unanswered = block(5003, mintTo(CAROL));
    await publishBlocks(unanswered);
    expect(await sent(5003)).toBe(null);
    const known = async (height: number): Promise<unknown> => {
      const account = toFelt(BigInt(0xda4e0000 + height));
      const later = block(height, mintTo(account));
      await publishBlocks(later);
      const requestedAt = await untilRequested(account);
      await publishRead(account, later, requestedAt, { type: 'balance.observed', balance: '77' });
      return await sent(height);
    };
    // After a wait in vain an answer must come within a second, which a busy machine may miss.
    let height = 5004;
    while (height < 5020 && (await known(height)) === null) height += 1;
    expect(height).toBeLessThan(5020);
    // From then on there is time again.
    expect(await known(height + 1)).toBe('77');
  });

  it('is not waited for where a projection is halted above it', async () => {
    poison = 5100;
    await publishBlocks(block(poison));
    await until(async () => {
      const { rows } = await world.pool.query('SELECT 1 FROM tds.projection_halts');
      return rows.length > 0;
    });
    await publishBlocks(block(2050, mint(9n)));
    expect(await sent(2050, 7000)).toBe(null);
  });
});
