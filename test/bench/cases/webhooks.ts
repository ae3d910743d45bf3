import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

import { z } from 'zod';

import { systemClock } from '../../../infra/clock.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import type { LogMessage } from '../../../infra/kafka/client.ts';
import { createLogger } from '../../../infra/log.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { inTransaction } from '../../../infra/postgres/client.ts';
import { insertDeliveries } from '../../../pipeline/dispatch/deliveries.ts';
import { createDispatchMetrics } from '../../../pipeline/dispatch/metrics.ts';
import { balanceMatcher } from '../../../pipeline/dispatch/match/balances.ts';
import { mapInOrder } from '../../../pipeline/dispatch/match/matcher.ts';
import { transferMatcher } from '../../../pipeline/dispatch/match/transfers.ts';
import { servedBuilds, servedSchema } from '../../../projections/served.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { verify } from '../../../schemas/webhooks/signature.ts';
import { accepted, busyBlock } from '../../support/chain-messages.ts';
import { makeWebhooks } from '../../support/make-webhooks.ts';
import { wanted } from '../case.ts';
import type { BenchCase, CaseReport } from '../case.ts';
import { latency, percentile } from '../measure.ts';
import type { Stores } from '../stores.ts';

const DELIVERIES = 20_000;
const BLOCKS = 200;
const ENDPOINTS = 500;
/** Every n-th endpoint hangs. */
const HANGS = 10;
const MATCHED = 20;
const SUBSCRIPTIONS = 100_000;
/** Per webhook. */
const MAX_SUBSCRIPTIONS = 1000;
const FIRST_HEAD = 40;
const GIVEN_UP_MS = 300_000;
/** Above the heights of the running chain, to avoid collisions. */
const FAR = 1_000_000_000;

interface Got {
  readonly webhook: number;
  readonly id: string;
  readonly attempt: number;
  readonly block: number;
  /** Unix milliseconds. */
  readonly at: number;
}

/** Records the deliveries. Hanging endpoints accept the request and never answer. */
async function receive(): Promise<{
  readonly url: string;
  readonly got: Got[];
  readonly wrong: () => number;
  close(): void;
}> {
  const got: Got[] = [];
  let wrong = 0;
  const server = createServer((request, response) => {
    const at = Date.now();
    void text(request).then(
      (body) => {
        const [, kind, webhook = ''] = request.url?.split('/') ?? [];
        try {
          const { data } = verify(body, request.headers, secret);
          const { headers } = request;
          got.push({
            webhook: Number(webhook),
            id: String(headers['x-vendor-delivery']),
            attempt: Number(headers['x-vendor-attempt']),
            block: 'block' in data ? Number(data.block) : -1,
            at,
          });
        } catch {
          wrong += 1;
        }
        if (kind !== 'hang') response.end();
      },
      () => {},
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    got,
    wrong: () => wrong,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

const secret = `whsec_${randomBytes(32).toString('base64')}`;

export const webhooks: BenchCase = {
  name: 'webhooks',
  summary: 'rate and latency of deliveries to local receivers, also next to hanging ones; matching',
  async run(world, { samples }) {
    const chain = await world.chain({ head: FIRST_HEAD, perBlock: 20 });
    const secretKey = randomBytes(32);
    const { dataDir } = await world.service('webhooks', {
      STARKNET_RPC_URL: chain.url,
      INDEX_FROM: '0',
      SECRET_KEY: secretKey.toString('hex'),
    });
    const stores = await world.stores(dataDir);
    const receiver = await receive();
    const make = async (
      paths: readonly string[],
      subscriptions: (index: number) => readonly { token: Felt | ''; address: Felt | '' }[],
      above = FAR,
      event: 'transfer.created' | 'balance.changed' = 'transfer.created',
    ): Promise<number[]> =>
      await makeWebhooks(
        { ...stores, secretKey },
        paths.map((path, index) => ({
          url: `${receiver.url}/${path}`,
          secret,
          events: [event],
          subscriptions: subscriptions(index),
          above,
        })),
      );
    const seconds = async (endpoints: number): Promise<number> => {
      const ids = await make(
        Array.from({ length: endpoints }, () => 'rate'),
        () => [],
      );
      return await delivered(stores, ids, receiver.got);
    };
    try {
      const figures: CaseReport['figures'][number][] = [];
      for (const endpoints of [1, 20]) {
        world.say(`${DELIVERIES} deliveries to ${endpoints}`);
        const value = DELIVERIES / (await seconds(endpoints));
        world.say(`${value.toFixed(0)} a second`);
        figures.push({
          name: `deliveries, endpoints: ${endpoints}`,
          value,
          unit: '1/s',
          want: wanted.deliveryRate,
        });
      }
      const firstAttempts = receiver.got.filter(({ attempt }) => attempt === 1).length;

      world.say(`matching against ${SUBSCRIPTIONS} subscriptions`);
      // Subscribe to every second account in the blocks.
      await make(
        Array.from({ length: SUBSCRIPTIONS / MAX_SUBSCRIPTIONS }, () => 'matched'),
        (index) =>
          Array.from({ length: MAX_SUBSCRIPTIONS }, (_, place) => ({
            token: '' as const,
            address: toFelt(0xacc0_0000n + BigInt(2 * (index * MAX_SUBSCRIPTIONS + place))),
          })),
        FAR,
      );
      const matching = await matched(stores, samples ?? MATCHED);
      world.say(`${percentile(matching.samples, 0.5).toFixed(0)} ms`);

      world.say('blocks to one endpoint');
      const blocks = samples ?? BLOCKS;
      const { head } = await chain.advance(1);
      const one = await make(['all/1'], () => [{ token: '', address: '' }], head);
      const toOne = await lags(stores, async () => await advance(chain, blocks), receiver.got, {
        above: head,
        ids: one,
      });
      world.say('balances of the same blocks');
      await make(['balances'], () => [{ token: '', address: '' }], FIRST_HEAD, 'balance.changed');
      const balances: CaseReport['figures'][number][] = [];
      for (const atOnce of [1, 8]) {
        const value = await balancesTold(stores, head, atOnce);
        world.say(`${value.toFixed(1)} blocks a second, ${atOnce} at once`);
        balances.push({
          name: `blocks whose balances are worked out, at once: ${atOnce}`,
          value,
          unit: '1/s',
        });
      }
      world.say(`blocks to ${ENDPOINTS} endpoints, of which every ${HANGS}th hangs`);
      const { byAccount } = await chain.truth();
      const busiest = Object.entries(byAccount)
        .toSorted(([, a], [, b]) => b - a)
        .map(([address]) => toFelt(BigInt(address)));
      const path = (index: number): string => (index % HANGS === 0 ? `hang/${index}` : `among/${index}`);
      const then = await chain.advance(1);
      const among = await make(
        Array.from({ length: ENDPOINTS }, (_, index) => path(index)),
        (index) => [{ token: '', address: busiest[index % busiest.length] ?? '' }],
        then.head,
      );
      const amongThem = await lags(stores, async () => await advance(chain, blocks), receiver.got, {
        above: then.head,
        ids: among.filter((_, index) => index % HANGS !== 0),
      });

      return {
        figures: [
          ...figures,
          ...latency('block published until first attempt', toOne.filter(isHealthy).map(lagOf), {
            median: wanted.deliveryMedian,
            tail: wanted.deliveryTail,
          }),
          ...latency(`the same, healthy of ${ENDPOINTS}`, amongThem.filter(isHealthy).map(lagOf), {
            tail: wanted.deliveryTailBesideHanging,
          }),
          ...latency('matching 2,000 transfers', matching.samples, { median: wanted.matching }),
          { name: 'deliveries that a block of them makes', value: matching.deliveries, unit: '' },
          ...balances,
        ],
        completeness: [
          {
            what: 'first attempts of deliveries that were due',
            expected: 2 * DELIVERIES,
            found: firstAttempts,
          },
          { what: 'requests with an invalid signature', expected: 0, found: receiver.wrong() },
          {
            what: 'blocks delivered to one endpoint',
            expected: blocks,
            found: new Set(toOne.map(({ block }) => block)).size,
          },
        ],
        notes: [
          'Deliveries: from the first request until the last is written down as a success. Blocks: from the time of the message in the log until the first attempt of a delivery reached its receiver, for every delivery. Receivers and dispatcher share the machine with the rest of the service.',
        ],
      };
    } finally {
      receiver.close();
    }
  },
};

/** Seconds until deliveries that are all due at once are sent and recorded. */
async function delivered({ pool }: Stores, ids: readonly number[], got: readonly Got[]): Promise<number> {
  const before = got.length;
  const createdAt = Date.now();
  const body = JSON.stringify({
    event: 'transfer.created',
    created_at: new Date(createdAt).toISOString(),
    data: { filler: 'x'.repeat(700) },
  });
  const made = Array.from({ length: DELIVERIES }, (_, index) => ({
    id: randomUUID(),
    webhookId: ids[index % ids.length] ?? 0,
    event: 'transfer.created',
    body,
    createdAt,
  }));
  await inTransaction(pool, async (tx) => await insertDeliveries(tx, made));
  await until('deliveries', async () => {
    if (got.length < before + DELIVERIES) return false;
    const { rows } = await pool.query<{ n: number }>(
      "SELECT count(*)::int AS n FROM tds.webhook_deliveries WHERE webhook_id = ANY ($1) AND status = 'success'",
      [ids],
    );
    return rows[0]?.n === DELIVERIES;
  });
  return (Date.now() - (got[before]?.at ?? 0)) / 1000;
}

interface Lag extends Got {
  readonly publishedAt: number;
}
const lagOf = ({ at, publishedAt }: Lag): number => at - publishedAt;
const isHealthy = ({ webhook }: Lag): boolean => webhook % HANGS !== 0;

/** First attempts of deliveries from blocks above a height to the webhooks `ids`, with the log time of their block. */
async function lags(
  { kafka, pool }: Stores,
  makeBlocks: () => Promise<number>,
  got: readonly Got[],
  { above, ids }: { readonly above: number; readonly ids: readonly number[] },
): Promise<Lag[]> {
  const before = got.length;
  const head = await makeBlocks();
  await until('first attempts', async () => {
    const { rows: seen } = await pool.query('SELECT 1 FROM tds.dispatch_blocks WHERE height = $1', [head]);
    const { rows } = await pool.query(
      'SELECT 1 FROM tds.webhook_deliveries WHERE webhook_id = ANY ($1) AND attempts = 0 LIMIT 1',
      [ids],
    );
    return seen.length > 0 && rows.length === 0;
  });
  const published = new Map<number, number>();
  for (const { partition, low, high } of await kafka.offsets(topics.chainBlocks))
    for await (const { key, timestamp } of kafka.readRange(topics.chainBlocks, partition, low, high))
      if (Number(key) > above) published.set(Number(key), timestamp);
  return got.slice(before).flatMap((one) => {
    const publishedAt = published.get(one.block);
    return one.attempt !== 1 || publishedAt === undefined ? [] : [{ ...one, publishedAt }];
  });
}

/** Adds blocks one after the other; returns the last height. */
async function advance(
  chain: { advance(blocks: number): Promise<{ head: number }> },
  blocks: number,
): Promise<number> {
  let head = 0;
  for (let made = 0; made < blocks; made += 1) {
    await sleep(200);
    ({ head } = await chain.advance(1));
  }
  return head;
}

/** Milliseconds that the matcher spends on one message, and the number of deliveries it creates. */
async function matched(
  { kafka, pool, clickhouse }: Stores,
  samples: number,
): Promise<{ samples: number[]; deliveries: number }> {
  const matcher = transferMatcher({
    pool,
    clickhouse,
    webhooks: async () => await servedSchema(pool, 'webhooks'),
    readServed: async () => null,
    since: async () => null,
    clock: systemClock,
    metrics: createDispatchMetrics(createMetrics('bench')),
    log: createLogger('bench', 'warn'),
    kafka,
    signal: new AbortController().signal,
  });
  const count = async (): Promise<number> => {
    const { rows } = await pool.query<{ n: number }>('SELECT count(*)::int AS n FROM tds.webhook_deliveries');
    return z.number().parse(rows[0]?.n);
  };
  const found: number[] = [];
  const before = await count();
  for (let index = 0; index <= samples; index += 1) {
    const height = FAR + 1 + index;
    const value = Buffer.from(JSON.stringify(accepted(busyBlock(height, 1000), height)));
    const place = {
      topic: topics.chainBlocks.name,
      partition: 0,
      offset: index,
      key: String(height),
      value,
      timestamp: 0,
    };
    const began = performance.now();
    const opened = await matcher.open();
    if (opened?.isRelevant(place) !== true) throw new Error('the block is not relevant');
    const message = topics.chainBlocks.schema.parse(JSON.parse(value.toString()));
    const plan = await opened.match(message, place);
    if (typeof plan === 'function') await inTransaction(pool, plan);
    // Warm-up for the JIT compiler.
    if (index > 0) found.push(performance.now() - began);
    // The dispatcher sends the deliveries meanwhile; wait for it, so that it does not disturb the measurement.
    await until('deliveries of a block', async () => {
      const { rows } = await pool.query(
        'SELECT 1 FROM tds.webhook_deliveries WHERE due_at IS NOT NULL LIMIT 1',
      );
      return rows.length === 0;
    });
  }
  return { samples: found, deliveries: ((await count()) - before) / (samples + 1) };
}

/** Blocks per second of the balance matcher, above a height, at a given concurrency. */
async function balancesTold(
  { kafka, pool, clickhouse }: Stores,
  above: number,
  atOnce: number,
): Promise<number> {
  const matcher = balanceMatcher({
    pool,
    clickhouse,
    webhooks: async () => await servedSchema(pool, 'webhooks'),
    readServed: async (read) => await read(await servedBuilds(pool)),
    since: async () => null,
    clock: systemClock,
    metrics: createDispatchMetrics(createMetrics('bench')),
    log: createLogger('bench', 'warn'),
    kafka,
    signal: new AbortController().signal,
    publisher: { publish: () => Promise.reject(new Error('a balance is not known')) },
  });
  const messages: LogMessage[] = [];
  for (const { partition, low, high } of await kafka.offsets(topics.chainBlocks))
    for await (const message of kafka.readRange(topics.chainBlocks, partition, low, high))
      if (Number(message.key) > above) messages.push(message);
  const opened = await matcher.open();
  const began = performance.now();
  const plans = mapInOrder(messages, atOnce, async (message) => {
    if (opened?.isRelevant(message) !== true) throw new Error('the block is not relevant');
    return await opened.match(topics.chainBlocks.schema.parse(JSON.parse(message.value.toString())), message);
  });
  for await (const [{ key }, plan] of plans) if (plan === null) throw new Error(`nothing in block ${key}`);
  return (1000 * messages.length) / (performance.now() - began);
}

async function until(what: string, look: () => Promise<boolean>): Promise<void> {
  const began = performance.now();
  while (!(await look())) {
    if (performance.now() - began > GIVEN_UP_MS) throw new Error(`${what}: not there after five minutes`);
    await sleep(50);
  }
}
