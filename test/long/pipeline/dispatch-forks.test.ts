import { Registry } from 'prom-client';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';

import { systemClock } from '../../../infra/clock.ts';
import { inTransaction } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { createDispatchMetrics } from '../../../pipeline/dispatch/metrics.ts';
import { revertBalances, notifyBalances } from '../../../pipeline/dispatch/match/notified-balances.ts';
import { transferMatcher } from '../../../pipeline/dispatch/match/transfers.ts';
import { withNames } from '../../../projections/define.ts';
import { webhooks } from '../../../projections/webhooks/projector.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { BlockBody, ChainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import { partitionOfHeight } from '../../../schemas/topics.ts';
import { COIN, accepted, makeBlock, reverted, transferEvent } from '../../support/chain-messages.ts';
import { interleaving } from '../../support/interleaving.ts';
import { projectionWorld } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';
import { createRandom } from '../../support/random.ts';
import type { Random } from '../../support/random.ts';

/**
 * What is sent of transfers while the chain forks where two partitions meet: each is read in its order, the two in any, side
 * by side, statement by statement. Whoever is late, nobody is left with what is not so.
 */

const SCHEMA = 'model';
/** Of heights: the first of the second partition. */
const BORDER = 1024;
/** A fork that is so far past a transfer lacks it. */
const PAST = 10;
/** Hears of both events; and of what is created alone. */
const [BOTH, CREATED] = [1, 2];

let world: ProjectionWorld;
beforeAll(async () => {
  world = await projectionWorld();
  await world.pool.query(`CREATE SCHEMA ${SCHEMA}`);
  await world.pool.query(withNames(webhooks.ddl, { schema: SCHEMA }));
  for (const [id, events] of [
    [BOTH, ['transfer.created', 'transfer.reverted']],
    [CREATED, ['transfer.created']],
  ]) {
    await world.pool.query(
      `INSERT INTO ${SCHEMA}.webhooks (id, user_id, name, url, events, status, created_at, updated_at, activation, secret, from_block)
       VALUES ($1, 1, 'mine', 'http://127.0.0.2/', $2, 'active', 0, 0, 1, 'sealed', -1)`,
      [id, events],
    );
    await world.pool.query(
      `INSERT INTO ${SCHEMA}.webhook_subscriptions (id, webhook_id, token, address, price_above, price_below)
       VALUES ($1, $1, '', '', '', '')`,
      [id],
    );
  }
});
afterAll(async () => await world.close());
beforeEach(async () => {
  await world.pool.query('TRUNCATE tds.webhook_deliveries, tds.webhook_endpoints, tds.dispatch_blocks');
  await setStatus('active');
});

const setStatus = async (status: 'active' | 'paused'): Promise<unknown> =>
  await world.pool.query(`UPDATE ${SCHEMA}.webhooks SET status = $1`, [status]);

/** Reads one message, as a matcher does. */
function reader(pool: Pool): (message: ChainBlocksMessage) => Promise<void> {
  const matcher = transferMatcher({
    pool,
    clickhouse: { rows: () => Promise.reject(new Error('not asked for')) },
    webhooks: () => Promise.resolve(SCHEMA),
    readServed: () => Promise.reject(new Error('not asked for')),
    since: () => Promise.resolve(0),
    clock: systemClock,
    metrics: createDispatchMetrics(new Registry()),
    log: world.log,
    kafka: world.kafka,
    signal: new AbortController().signal,
  });
  return async (message) => {
    const { height } = message.block;
    const about = {
      topic: 'chain.blocks',
      partition: partitionOfHeight(height),
      offset: message.seq,
      key: String(height),
      value: Buffer.alloc(0),
      timestamp: 0,
    };
    const opened = await matcher.open();
    if (opened === null || !opened.isRelevant(about)) return;
    const plan = await opened.match(message, about);
    if (typeof plan === 'function') await inTransaction(pool, plan);
  };
}

/** A transfer by its number, which is also its amount. */
const transfer = (number: number) => ({
  hash: toFelt(0x7a_0000n + BigInt(number)),
  events: [transferEvent(COIN, toFelt(0xa11cen), toFelt(0xb0bn), BigInt(number))],
});
const amountsOf = ({ transactions }: BlockBody): number[] =>
  transactions.map(({ events }) => Number(events[0]?.data[0] ?? 0));

interface Log {
  readonly messages: ChainBlocksMessage[];
  /** Amounts of what is in a block in the end. */
  readonly inForce: ReadonlySet<number>;
  /** How often each was sent as reverted, if all is read in order. */
  readonly went: ReadonlyMap<number, number>;
}

/** A chain that grows and forks around the border. What a fork takes off lands again later, or never. */
function forkingChain(random: Random): Log {
  const messages: ChainBlocksMessage[] = [];
  const chain: BlockBody[] = [];
  const forks: number[] = [];
  const first = BORDER - 20;
  const went = new Map<number, number>();
  const gone = new Map<number, number>();
  let [fork, made, seq] = [0, 0, 0];
  let loose: number[] = [];

  const grow = (amounts: readonly number[]): void => {
    const height = first + chain.length;
    const parentFork = forks.at(-1) ?? 0;
    const block = makeBlock({ height, fork: (fork += 1), parentFork, transactions: amounts.map(transfer) });
    chain.push(block);
    forks.push(fork);
    messages.push(accepted(block, (seq += 1)));
    for (const amount of amounts) gone.delete(amount);
    for (const [amount, at] of gone) {
      if (height < at + PAST) continue;
      gone.delete(amount);
      went.set(amount, (went.get(amount) ?? 0) + 1);
    }
  };
  const cut = (): void => {
    const block = chain.pop();
    forks.pop();
    if (block === undefined) return;
    messages.push(reverted(block, (seq += 1)));
    for (const amount of amountsOf(block)) {
      gone.set(amount, block.height);
      loose.push(amount);
    }
  };
  const some = (): number[] => {
    const again = loose.filter(() => random.chance(150));
    loose = loose.filter((amount) => !again.includes(amount));
    return random.chance(400) ? [...again, (made += 1)] : again;
  };

  while (chain.length < 12) grow(some());
  for (let step = 0; step < 60; step += 1) {
    if (random.chance(850) || chain.length < 3) grow(some());
    else for (let depth = 1 + random.below(Math.min(14, chain.length - 2)); depth > 0; depth -= 1) cut();
  }
  const highest = Math.max(...messages.map(({ block }) => block.height));
  while (first + chain.length <= highest + PAST) grow([]);
  return { messages, inForce: new Set(chain.flatMap(amountsOf)), went };
}

const counted = async (): Promise<ReadonlyMap<string, number>> => {
  const { rows } = await world.pool.query<{ webhook_id: number; event: string; body: string }>(
    'SELECT webhook_id, event, body FROM tds.webhook_deliveries',
  );
  const amounts = rows.map(({ webhook_id: id, event, body }) => {
    const { data } = JSON.parse(body) as { data: { value: string } };
    return `${id} ${event} ${data.value}`;
  });
  return new Map([...Map.groupBy(amounts, (key) => key)].map(([key, { length }]) => [key, length]));
};

/** What the receivers are left with that is not so. */
async function wrongs({ messages, inForce, went }: Log): Promise<string[]> {
  const times = await counted();
  const all = new Set(messages.flatMap(({ block }) => amountsOf(block)));
  return [...all].flatMap((amount) => {
    const of = (webhook: number, event: string): number => times.get(`${webhook} ${event} ${amount}`) ?? 0;
    const [came, left] = [of(BOTH, 'transfer.created'), of(BOTH, 'transfer.reverted')];
    const isThere = inForce.has(amount);
    const isRight = came - left === (isThere ? 1 : 0) && left <= (went.get(amount) ?? 0);
    const isRightToTheDeaf = of(CREATED, 'transfer.created') === 1 && of(CREATED, 'transfer.reverted') === 0;
    return isRight && isRightToTheDeaf
      ? []
      : [
          `${amount}: came ${came}, went ${left} of ${went.get(amount) ?? 0}, ${isThere ? 'is' : 'is not'} there`,
        ];
  });
}

it.each(Array.from({ length: 24 }, (_, seed) => seed))(
  'leaves no receiver with a wrong state, in whatever order it is read (seed %i)',
  async (seed) => {
    const random = createRandom(seed);
    const log = forkingChain(random);
    const between = interleaving(world.pool, random);
    const read = reader(between.pool);
    const queues = [...Map.groupBy(log.messages, ({ block }) => partitionOfHeight(block.height)).values()];
    while (queues.some(({ length }) => length > 0)) {
      const work = queues.map((queue) => {
        const some = queue.splice(0, random.chance(300) ? 0 : 1 + random.below(4));
        return async () => {
          for (const message of some) await read(message);
        };
      });
      await between.run(work);
    }
    expect(await wrongs(log), `seed ${seed}`).toEqual([]);
  },
);

describe('a reverted transfer', () => {
  const block = (height: number, fork: number, parentFork = fork, amounts: number[] = []): BlockBody =>
    makeBlock({ height, fork, parentFork, transactions: amounts.map(transfer) });
  const revertedCount = async (): Promise<number | undefined> =>
    (await counted()).get(`${BOTH} transfer.reverted 1`);

  it('is sent as reverted when the webhook was paused for a while before the fork was confirmed', async () => {
    const read = reader(world.pool);
    let seq = 0;
    const old = block(100, 0, 0, [1]);
    await read(accepted(old, (seq += 1)));
    await read(reverted(old, (seq += 1)));
    for (let height = 100; height <= 110; height += 1) {
      await setStatus(height > 102 && height < 108 ? 'paused' : 'active');
      expect(await revertedCount()).toBeUndefined();
      await read(accepted(block(height, 1), (seq += 1)));
    }
    expect(await revertedCount()).toBe(1);
  });

  it('is not sent as reverted to a webhook that is paused by then', async () => {
    const read = reader(world.pool);
    let seq = 0;
    const old = block(100, 0, 0, [1]);
    await read(accepted(old, (seq += 1)));
    await read(reverted(old, (seq += 1)));
    await setStatus('paused');
    for (let height = 100; height <= 115; height += 1) await read(accepted(block(height, 1), (seq += 1)));
    await setStatus('active');
    await read(accepted(block(116, 1), (seq += 1)));
    expect(await revertedCount()).toBeUndefined();
  });

  it.each([
    ['kept', 100_000, true],
    ['forgotten', 1_000_000, false],
  ])(
    'is sent as reverted when another partition is read so far ahead that its blocks would be %s',
    async (_, far, isKept) => {
      const read = reader(world.pool);
      const old = block(1022, 0, 0, [1]);
      await read(accepted(old, 1));
      // Those of the second partition come first, and what follows them.
      for (let height = BORDER; height <= BORDER + 20; height += 1)
        await read(accepted(block(height, 1), height));
      await read(accepted(block(far, 1), far));
      await read(reverted(old, 2));
      expect(await revertedCount()).toBeUndefined();
      await read(accepted(block(1022, 1), 1022));
      // What is forgotten is not waited for.
      expect(await revertedCount()).toBe(isKept ? undefined : 1);
      await read(accepted(block(1023, 1), 1023));
      expect(await revertedCount()).toBe(1);
    },
  );

  it('is not sent again because of an older block of a partition that is read later', async () => {
    const read = reader(world.pool);
    const first = block(BORDER, 0, 0, [1]);
    const second = block(1010, 1, 0, [1]);
    await read(accepted(block(1009, 0), 1));
    await read(accepted(second, 4));
    await read(reverted(second, 5));
    for (let height = 1010; height <= 1020; height += 1)
      await read(accepted(block(height, 2, height === 1010 ? 0 : 2), height));
    expect(await revertedCount()).toBe(1);
    await read(accepted(first, 2));
    await read(reverted(first, 3));
    expect((await counted()).get(`${BOTH} transfer.created 1`)).toBe(1);
    expect(await revertedCount()).toBe(1);
  });

  const seeds = Array.from({ length: 10 }, (_, seed) => seed);
  /** Two partitions read these, each one of them, side by side. */
  const sideBySide = async (seed: number, ...messages: ChainBlocksMessage[]): Promise<void> => {
    const between = interleaving(world.pool, createRandom(seed));
    const read = reader(between.pool);
    await between.run(messages.map((message) => async () => await read(message)));
  };

  it.each(seeds)(
    'is sent as reverted by the later of two transactions that complete ten confirmations (order %i)',
    async (seed) => {
      const read = reader(world.pool);
      const old = block(1020, 0, 0, [1]);
      await read(accepted(old, 1));
      await read(reverted(old, 2));
      for (let height = 1020; height < 1030; height += 1)
        if (height !== 1023) await read(accepted(block(height, 1), height));
      expect(await revertedCount()).toBeUndefined();
      await sideBySide(seed, accepted(block(1023, 1), 1023), accepted(block(1030, 1), 1030));
      expect(await revertedCount()).toBe(1);
    },
  );

  it.each(seeds)(
    'is sent again when it is included again while its removal is detected (order %i)',
    async (seed) => {
      const read = reader(world.pool);
      const old = block(1013, 0, 0, [1]);
      await read(accepted(old, 1));
      await read(reverted(old, 2));
      for (let height = 1013; height < 1023; height += 1) await read(accepted(block(height, 1), height));
      await sideBySide(seed, accepted(block(1023, 1), 1023), accepted(block(1024, 1, 1, [1]), 1024));
      const came = (await counted()).get(`${BOTH} transfer.created 1`) ?? 0;
      expect(came - ((await revertedCount()) ?? 0)).toBe(1);
    },
  );
});

describe('the last balance that a receiver was sent', () => {
  interface Change {
    readonly name: number;
    readonly before: number;
    readonly after: number;
  }
  interface Block {
    readonly height: number;
    readonly hash: string;
    readonly changes: readonly Change[];
  }
  const PAIR = '6f0b7d0e-5a7c-4d0c-9a53-0c8f2b1d7e65';
  const keyOf = ({ name, before, after }: Change): string => `${name} ${before} ${after}`;

  /** The bodies sent, in order; each names its change. */
  const sentBodies = async (): Promise<string[]> => {
    const { rows } = await world.pool.query<{ body: string }>(
      'SELECT body FROM tds.webhook_deliveries ORDER BY created_at, id',
    );
    return rows.map(({ body }) => body);
  };

  it.each(Array.from({ length: 24 }, (_, seed) => seed))(
    'equals the chain, or was followed by its reversal (seed %i)',
    async (seed) => {
      const random = createRandom(seed);
      const chain: Block[] = [];
      let [seq, made, at] = [0, 0, 0];
      /** Names of changes that may land, again or for the first time. */
      let loose: number[] = [];
      /** What was in force when each was sent last. */
      const below = new Map<string, readonly string[]>();
      const inForce = (): string[] => chain.flatMap(({ changes }) => changes.map(keyOf));

      const grow = async (names: readonly number[]): Promise<void> => {
        let balance = chain.flatMap(({ changes }) => changes).at(-1)?.after ?? 0;
        const changes = names.map((name) => {
          const before = balance;
          balance += 1 + (name % 2);
          return { name, before, after: balance };
        });
        const height = chain.length;
        const block = { height, hash: `${height} ${changes.map(keyOf).join()} ${(seq += 1)}`, changes };
        chain.push(block);
        const createdAt = (at += 100);
        const asked = changes.map((change, i) => ({
          webhookId: BOTH,
          pair: PAIR,
          parts: [keyOf(change)],
          body: keyOf(change),
          createdAt: createdAt + i,
        }));
        const news = await inTransaction(
          world.pool,
          async (tx) => await notifyBalances(tx, { ...block, seq }, asked),
        );
        for (const key of (await sentBodies()).slice(-news)) if (news > 0) below.set(key, inForce());
      };
      const cut = async (): Promise<void> => {
        const block = chain.pop();
        if (block === undefined) return;
        loose.push(...block.changes.map(({ name }) => name));
        seq += 1;
        await inTransaction(world.pool, async (tx) => await revertBalances(tx, { ...block, seq }));
      };

      for (let step = 0; step < 40; step += 1) {
        if (random.chance(600) || chain.length === 0) {
          const again = loose.filter(() => random.chance(400));
          loose = loose.filter((name) => !again.includes(name));
          const some = random.chance(400) ? [...again, (made += 1)] : again;
          await grow(random.chance(500) ? some : some.toReversed());
        } else for (let depth = 1 + random.below(3); depth > 0; depth -= 1) await cut();
        const sent = await sentBodies();
        const now = inForce();
        const [last, newest] = [sent.at(-1), now.at(-1)];
        for (const key of now) expect(sent, `seed ${seed}, step ${step}`).toContain(key);
        if (newest === undefined || last === undefined || last === newest) continue;
        expect(now, `seed ${seed}, step ${step}: ${sent.join()}`).not.toContain(last);
        expect(below.get(last), `seed ${seed}, step ${step}: ${sent.join()}`).toContain(newest);
      }
    },
  );
});
