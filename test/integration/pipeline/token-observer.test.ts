import { Registry } from 'prom-client';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';

import { createSimulatedNode } from '../../support/starknet/node.ts';
import type { SimulatedNode } from '../../support/starknet/node.ts';
import { tokens } from '../../../infra/embedded/starknet/tokens.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { createNodeMetrics } from '../../../pipeline/node/metrics.ts';
import { createNode } from '../../../pipeline/node/node.ts';
import type { Node } from '../../../pipeline/node/types.ts';
import { createBlockFeed } from '../../../pipeline/observe/block-feed.ts';
import type { BlockHandler } from '../../../pipeline/observe/block-feed.ts';
import { requestRepairs } from '../../../pipeline/ingest/repair/requests.ts';
import { createBackfillCheck } from '../../../pipeline/observe/backfill.ts';
import { isRebuilding, withRebuildLock } from '../../../projections/engine/builds.ts';
import { createObserverMetrics } from '../../../pipeline/observe/metrics.ts';
import { runTokenObserver } from '../../../pipeline/observe/tokens.ts';
import type { ObserverRun } from '../../../pipeline/observe/observer.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { BlockAccepted, ContractsMap } from '../../../schemas/messages/chain-blocks.ts';
import type { TokenStandard } from '../../../schemas/messages/common.ts';
import { tokensMessage } from '../../../schemas/messages/tokens.ts';
import type { TokensMessage } from '../../../schemas/messages/tokens.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import { accepted, makeBlock } from '../../support/chain-messages.ts';
import { observerWorld } from '../../support/observer-world.ts';
import type { ObserverWorld } from '../../support/observer-world.ts';
import { isConsumed, logOf } from '../../support/topic.ts';

let world: ObserverWorld;
let log: ObserverWorld['log'];
let pool: Pool;
let kafka: Kafka;
let simulated: SimulatedNode;
let node: Node;
/** The token observer and its feed, which is stopped first. */
let running: ObserverRun[] = [];
/** The observer's clock, which only the tests advance. */
let now = 1_700_000_000_000;

beforeAll(async () => {
  world = await observerWorld();
  ({ pool, kafka, log } = world);
  simulated = await createSimulatedNode({ manual: true, initialHead: 100 });
  node = createNode({
    url: simulated.url,
    // A call that fails is retried only when a test advances the clock, so a busy machine must not time out.
    timeoutMs: 30_000,
    maxConcurrent: 8,
    attempts: 1,
    metrics: createNodeMetrics(new Registry()),
  });
});
afterEach(() => stop());
afterAll(async () => {
  await node.close();
  await simulated.close();
  await world.close();
});

async function start(handlers: readonly BlockHandler[] = []): Promise<void> {
  const isBackfilling = createBackfillCheck(pool, kafka, () => isRebuilding(pool));
  const blocks = createBlockFeed({ pool, kafka, log, isBackfilling });
  for (const handle of handlers) blocks.subscribe(handle);
  const observer = await runTokenObserver({
    blocks,
    isBackfilling,
    config: { observerConcurrency: 4, observerCallsPerSecond: 1000 },
    node,
    pool,
    kafka,
    log,
    metrics: createObserverMetrics(new Registry()),
    now: () => now,
    pollMs: 20,
  });
  running = [observer];
  running.unshift(await blocks.start());
}

async function stop(): Promise<void> {
  for (const run of running.splice(0)) {
    await run.stop();
    await run.done;
  }
}

const addressOf = (key: string): Felt => toFelt(tokens.find((token) => token.key === key)?.address ?? 0n);

function block(
  height: number,
  contracts: ContractsMap,
  more: Partial<Pick<BlockAccepted, 'seq' | 'cause'>> = {},
): BlockAccepted {
  return { ...accepted(makeBlock({ height, transactions: [] }), height + 1), contracts, ...more };
}

async function publish(messages: readonly BlockAccepted[]): Promise<void> {
  const publisher = kafka.publisher();
  await publisher.publish(
    topics.chainBlocks,
    messages.map((value) => ({ value, partition: partitionOfHeight(value.block.height) })),
  );
  await publisher.close();
}

async function publishedTokens(): Promise<Extract<TokensMessage, { type: 'token.described' }>[]> {
  const found: TokensMessage[] = [];
  for await (const { key, value } of logOf(kafka, topics.tokens)) {
    const message = tokensMessage.parse(JSON.parse(value.toString()));
    expect(key).toBe(message.token);
    found.push(message);
  }
  return found.filter((message) => message.type === 'token.described');
}

interface Attempt {
  subject: string;
  attempts: number;
  next_at: number | null;
  last_error: string | null;
}
async function attemptsOf(subject: Felt): Promise<Attempt | undefined> {
  const { rows } = await pool.query<Attempt>('SELECT * FROM tds.observer_attempts WHERE subject = $1', [
    subject,
  ]);
  return rows[0];
}

async function untilConsumed(): Promise<void> {
  const isDone = (): Promise<boolean> => isConsumed(world, 'observe-tokens', topics.chainBlocks);
  await vi.waitFor(async () => expect(await isDone()).toBe(true), { timeout: 60_000, interval: 50 });
}

async function untilDone(): Promise<void> {
  await untilConsumed();
  await vi.waitFor(
    async () => {
      const { rows } = await pool.query(
        'SELECT subject FROM tds.observer_attempts WHERE next_at IS NOT NULL',
      );
      expect(rows).toEqual([]);
    },
    { timeout: 60_000, interval: 50 },
  );
}

const contractsOf = (contracts: readonly { address: bigint; standard: TokenStandard }[]): ContractsMap =>
  Object.fromEntries(
    contracts.map(({ address, standard }) => [toFelt(address), { standard, class_hash: toFelt(0xc1n) }]),
  );

test('retries a token with backoff while the node is unavailable, over a restart, then publishes it', async () => {
  const token = addressOf('usdc');
  simulated.faults.add({ kind: 'http503' });
  await publish([block(0, { [token]: { standard: 'erc20', class_hash: null } })]);
  await start();
  const delays: number[] = [];
  for (let failures = 1; failures <= 5; failures += 1) {
    if (failures === 4) {
      await stop();
      await start();
    }
    await vi.waitFor(
      async () => {
        const attempt = await attemptsOf(token);
        expect(attempt).toMatchObject({
          attempts: failures,
          last_error: 'Starknet node unreachable: HTTP 503; the answer begins with upstream connect error',
        });
        delays.push((attempt?.next_at ?? 0) - now);
      },
      { timeout: 60_000, interval: 20 },
    );
    // No attempt may run when the clock moves on: its claim would expire, and a second attempt would publish beside it.
    if (failures < 5) now += delays.at(-1) ?? 0;
  }
  // Doubling from a second, less up to half by chance.
  for (const [index, delay] of delays.entries()) {
    expect(delay).toBeLessThanOrEqual(1000 * 2 ** index);
    expect(delay).toBeGreaterThanOrEqual(500 * 2 ** index);
  }
  expect(await publishedTokens()).toEqual([]);

  simulated.faults.clear();
  now += 60_000;
  await untilDone();
  expect(await publishedTokens()).toEqual([
    {
      type: 'token.described',
      v: 1,
      token,
      standard: 'erc20',
      class_hash: null,
      name: 'USD Coin',
      symbol: 'USDC',
      decimals: 6,
      block: 0,
      observed_at: now,
    },
  ]);
});

test('publishes the name of every simulated token once, however often blocks are replayed', async () => {
  const blocks = [
    block(1, contractsOf(tokens.slice(0, 10))),
    block(1024, contractsOf(tokens)),
    block(2048, contractsOf(tokens.slice(5))),
  ];
  await start();
  await publish([...blocks, ...blocks]);
  await untilDone();
  await stop();

  const found = new Map((await publishedTokens()).map((message) => [message.token, message]));
  expect((await publishedTokens()).length).toBe(tokens.length);
  for (const { key, address, standard, decimals, answers, form } of tokens) {
    const message = found.get(toFelt(address));
    expect(message, key).toMatchObject({ standard });
    const hasDecimals = standard === 'erc20' && (form !== 'proxy' || answers.includes('decimals'));
    expect([key, message?.decimals]).toEqual([key, hasDecimals ? decimals : null]);
  }
  const namesOf = (key: string) => {
    const message = found.get(addressOf(key));
    return [message?.name, message?.symbol];
  };
  expect(namesOf('strk')).toEqual(['Starknet Token', 'STRK']);
  expect(namesOf('component')).toEqual([
    'A Component Token Whose Name Does Not Fit Into One Felt, Nor Into Two: 🚀',
    'COMPONENT-WITH-A-SYMBOL-BEYOND-31-BYTES',
  ]);
  expect(namesOf('hostile')).toEqual([
    `<script>alert("x")</script>'; DROP TABLE tokens; --🦊\u202egnp.exe`,
    '"␀\\💩',
  ]);
  expect(namesOf('hostile-felt')).toEqual(['A␀B\uFFFD\uFFFD"\'', '<b>א\u202e']);
  expect(namesOf('nameless')).toEqual([null, null]);
  expect(namesOf('untold')).toEqual([null, null]);
  expect(namesOf('decimals-only')).toEqual([null, null]);
  expect(namesOf('items')).toEqual(['Game Items', 'ITEM']);

  // Without its checkpoints, as after restoring a backup, the observer reads everything and publishes nothing new.
  await pool.query("DELETE FROM tds.checkpoints WHERE starts_with(consumer, 'observe-')");
  await start();
  await publish(blocks);
  await untilDone();
  expect((await publishedTokens()).length).toBe(tokens.length);
});

test('publishes a token again only when a repair changes its standard', async () => {
  const token = addressOf('foxes');
  const before = (await publishedTokens()).length;
  const as = (standard: TokenStandard, seq: number, cause: BlockAccepted['cause']) =>
    block(5, { [token]: { standard, class_hash: null } }, { seq, cause });
  await start();
  // Blocks from before the repair may be delivered after it.
  await publish([as('unknown', 500, 'new'), as('erc20', 600, 'repair')]);
  await untilDone();
  // Without its checkpoints and its cache, the observer reads everything again.
  await stop();
  await pool.query("DELETE FROM tds.checkpoints WHERE starts_with(consumer, 'observe-')");
  await start();
  await untilDone();
  for (const repeated of [
    as('erc721', 400, 'replay'),
    as('erc721', 550, 'repair'),
    as('erc20', 700, 'repair'),
  ]) {
    await publish([repeated]);
    await untilDone();
  }
  const about = (await publishedTokens()).filter((message) => message.token === token);
  expect((await publishedTokens()).length).toBe(before + 1);
  expect(about.map(({ standard, name }) => [standard, name])).toEqual([
    ['erc721', 'Seeded Foxes'],
    ['erc20', 'Seeded Foxes'],
  ]);
});

test('publishes a token once that a repair classified anew within one batch', async () => {
  const token = toFelt(0xabcdeen);
  const as = (standard: TokenStandard, seq: number, cause: BlockAccepted['cause']) =>
    block(6, { [token]: { standard, class_hash: null } }, { seq, cause });
  await publish([as('unknown', 800, 'new'), as('erc20', 801, 'repair')]);
  await start();
  await untilDone();
  expect((await publishedTokens()).filter((message) => message.token === token)).toMatchObject([
    { standard: 'erc20' },
  ]);
});

test('publishes a changed standard once all blocks of the token are repaired, and an unknown one at once', async () => {
  const [known, unknown] = [toFelt(0xabcde1n), toFelt(0xabcde2n)];
  const as = (
    standards: readonly [TokenStandard, TokenStandard],
    seq: number,
    cause: BlockAccepted['cause'],
  ) =>
    block(
      7,
      {
        [known]: { standard: standards[0], class_hash: null },
        [unknown]: { standard: standards[1], class_hash: null },
      },
      { seq, cause },
    );
  const standardsOf = async (token: Felt) =>
    (await publishedTokens()).filter((message) => message.token === token).map(({ standard }) => standard);
  await publish([as(['unknown', 'erc20'], 860, 'new')]);
  await start();
  await untilDone();
  // Two reclassifications meet in a block.
  for (const token of [unknown, known]) await requestRepairs(pool, [7, 8], `reclassify ${token}`);
  await publish([as(['erc20', 'unknown'], 861, 'repair')]);
  await vi.waitFor(async () => expect(await standardsOf(unknown)).toEqual(['erc20', 'unknown']), 60_000);
  await sleep(200);
  expect(await standardsOf(known)).toEqual(['unknown']);
  await pool.query('UPDATE tds.repairs SET done_at = now()');
  await untilDone();
  expect(await standardsOf(known)).toEqual(['unknown', 'erc20']);
});

test('publishes the lowest block of a token, and that only a repair led to its description', async () => {
  const token = toFelt(0xabcdebn);
  const publishedBlocks = async () => {
    await untilDone();
    const about = (await publishedTokens()).filter((message) => message.token === token);
    return about.map(({ standard, block: height, cause }) => [standard, height, cause]);
  };
  const as = (height: number, standard: TokenStandard, seq: number, cause: BlockAccepted['cause']) =>
    block(height, { [token]: { standard, class_hash: null } }, { seq, cause });
  await publish([as(5, 'unknown', 900, 'new')]);
  await start();
  expect(await publishedBlocks()).toEqual([['unknown', 5, undefined]]);
  await stop();
  await publish([as(12, 'erc20', 901, 'repair'), as(9, 'erc20', 902, 'repair')]);
  await start();
  expect(await publishedBlocks()).toEqual([
    ['unknown', 5, undefined],
    ['erc20', 5, 'repair'],
  ]);
});

test('publishes the lowest block of a token that a repair classified within one batch', async () => {
  const [repaired, unchanged] = [toFelt(0xabcdean), toFelt(0xabcde9n)];
  const as = (height: number, standard: TokenStandard, seq: number, cause: BlockAccepted['cause']) => {
    const facts = { class_hash: null };
    const contracts = {
      [repaired]: { ...facts, standard },
      [unchanged]: { ...facts, standard: 'erc20' as const },
    };
    return block(height, contracts, { seq, cause });
  };
  await publish([
    as(5, 'unknown', 910, 'new'),
    as(12, 'unknown', 910, 'new'),
    as(5, 'erc20', 911, 'repair'),
    as(12, 'erc20', 912, 'repair'),
  ]);
  await start();
  await untilDone();
  const found = (await publishedTokens()).filter(({ token }) => token === repaired || token === unchanged);
  expect(new Map(found.map(({ token, block: height, cause }) => [token, [height, cause]]))).toEqual(
    new Map([
      [repaired, [5, 'repair']],
      [unchanged, [5, undefined]],
    ]),
  );
});

test('describes a token at once when the clock was set back after an attempt', async () => {
  const token = toFelt(0xabcde7n);
  const before = now;
  now += 86_400_000;
  simulated.faults.add({ kind: 'http503' });
  await publish([block(8, { [token]: { standard: 'erc20', class_hash: null } })]);
  await start();
  await vi.waitFor(async () => expect(await attemptsOf(token)).toMatchObject({ attempts: 1 }), 60_000);
  await stop();
  simulated.faults.clear();
  now = before;
  await start();
  await untilDone();
  expect((await publishedTokens()).filter((message) => message.token === token)).toHaveLength(1);
});

test('publishes names during a backfill, which ends when the projections have read all chunks of history', async () => {
  await pool.query(
    `INSERT INTO tds.chunks (name, range_start, range_end, cursor, final_height)
     VALUES ('live', 1000, NULL, 1000, 999), ('history', 0, 999, 10, 9)`,
  );
  const isBackfilling = createBackfillCheck(pool, kafka, () => isRebuilding(pool));
  expect(await isBackfilling()).toBe(true);
  const token = toFelt(0xabcdedn);
  await publish([block(7, { [token]: { standard: 'erc20', class_hash: null } })]);
  await start();
  await untilDone();
  expect((await publishedTokens()).filter((message) => message.token === token)).toHaveLength(1);

  // The end of the log, further from the checkpoint of a projection than at the head.
  await publish(Array.from({ length: 50 }, (_, i) => block(3072 + i, {})));
  await pool.query(
    `WITH build AS (INSERT INTO tds.builds (projection, build, version, shape_hash, state)
       VALUES ('transfers', 1, 1, '', 'serving'))
     INSERT INTO tds.checkpoints (consumer, build, topic, topic_id, partition, next_offset)
     VALUES ('transfers', 1, $1, 'id', $2, 0)`,
    [topics.chainBlocks.name, partitionOfHeight(3072)],
  );
  await pool.query("UPDATE tds.chunks SET status = 'finished' WHERE name = 'history'");
  await sleep(1100);
  expect(await isBackfilling()).toBe(true);
  await pool.query("UPDATE tds.checkpoints SET next_offset = $1 WHERE consumer = 'transfers'", [50]);
  await vi.waitFor(async () => expect(await isBackfilling()).toBe(false), { timeout: 30_000 });
  for (const table of ['chunks', 'builds', "checkpoints WHERE consumer = 'transfers'"])
    await pool.query(`DELETE FROM tds.${table}`);
});

test('counts a rebuild as a backfill while its process runs', async () => {
  const isBackfilling = (): Promise<boolean> => createBackfillCheck(pool, kafka, () => isRebuilding(pool))();
  await pool.query(
    "INSERT INTO tds.builds (projection, build, version, shape_hash, state) VALUES ('transfers', 1, 1, '', 'building')",
  );
  expect(await isBackfilling()).toBe(false);
  await withRebuildLock(pool, ['holders'], async () => {
    expect(await isBackfilling()).toBe(false);
  });
  await withRebuildLock(pool, ['holders', 'transfers'], async () => {
    expect(await isBackfilling()).toBe(true);
  });
  expect(await isBackfilling()).toBe(false);
  await pool.query('DELETE FROM tds.builds');
});

test('a rebuild ends for observers although another projection stands still', async () => {
  await publish(Array.from({ length: 50 }, (_, i) => block(3072 + i, {})));
  await pool.query(
    `WITH build AS (INSERT INTO tds.builds (projection, build, version, shape_hash, state)
       VALUES ('outdated', 1, 1, '', 'serving'))
     INSERT INTO tds.checkpoints (consumer, build, topic, topic_id, partition, next_offset)
     VALUES ('outdated', 1, $1, 'id', $2, 0)`,
    [topics.chainBlocks.name, partitionOfHeight(3072)],
  );
  let isRunning = true;
  const isBackfilling = createBackfillCheck(pool, kafka, async () => isRunning);
  expect(await isBackfilling()).toBe(true);
  isRunning = false;
  await sleep(1100);
  expect(await isBackfilling()).toBe(false);
  for (const table of ['builds', "checkpoints WHERE consumer = 'outdated'"])
    await pool.query(`DELETE FROM tds.${table}`);
});

test('stores the checkpoint after every observer has stored its tasks', async () => {
  const checkpoints = async () => {
    const { rows } = await pool.query(
      "SELECT partition, next_offset FROM tds.checkpoints WHERE consumer = 'observe-tokens' ORDER BY partition",
    );
    return rows;
  };
  await start();
  await untilDone();
  await stop();
  const before = await checkpoints();
  const [offsets, token] = [[] as number[], toFelt(0xabcdecn)];
  const stored = Promise.withResolvers<void>();
  await start([
    async (blocks) => {
      offsets.push(...blocks.map(({ offset }) => offset));
      await stored.promise;
    },
  ]);
  await publish([block(8, { [token]: { standard: 'erc20', class_hash: null } })]);
  await vi.waitFor(async () => expect(await attemptsOf(token)).toMatchObject({ next_at: null }), {
    timeout: 60_000,
  });
  expect(offsets).toHaveLength(1);
  expect(await checkpoints()).toEqual(before);
  stored.resolve();
  await untilConsumed();
});

test('skips an invalid message', async () => {
  const token = toFelt(0xabcdefn);
  const publisher = kafka.publisher();
  const broken = { ...block(3, {}), contracts: { nonsense: 1 } } as unknown as BlockAccepted;
  await publisher.publish(topics.chainBlocks, [{ value: broken, partition: 0 }]);
  await publisher.close();
  await publish([block(4, { [token]: { standard: 'unknown', class_hash: null } })]);
  await start();
  await untilDone();
  // There is no such contract: every field is refused.
  expect((await publishedTokens()).filter((message) => message.token === token)).toMatchObject([
    { standard: 'unknown', name: null, symbol: null, decimals: null, block: 4 },
  ]);
});
