import { Registry } from 'prom-client';
import { describe, expect, test } from 'vitest';

import { systemClock } from '../../../../infra/clock.ts';
import type { Clock } from '../../../../infra/clock.ts';
import { createHealth } from '../../../../pipeline/ingest/health.ts';
import { createIngestMetrics } from '../../../../pipeline/ingest/metrics.ts';
import { RpcError } from '../../../../pipeline/node/errors.ts';
import { AppError } from '../../../../schemas/errors.ts';
import { toFelt } from '../../../../schemas/felt.ts';
import { topics } from '../../../../schemas/topics.ts';
import { createSimStore } from '../../../simulate/ingest-store.ts';
import { log } from '../../../simulate/stage.ts';
import { createWorld } from '../../../simulate/world.ts';
import type { SimWorld } from '../../../simulate/world.ts';

const alarmsOf = ({ store }: SimWorld): string[] => [...store.alarms.keys()].toSorted();
const messages = ({ broker }: SimWorld) => broker.messages(topics.chainBlocks);

test('raises one alarm while a chunk with work makes no progress, and clears it on progress', async () => {
  const world = createWorld({ seed: 1 });
  world.startIngester();
  await world.clock.run(30_000);
  expect(alarmsOf(world)).toEqual([]);

  // The node loses every answer, so the new head is not seen.
  world.faultRates.faults = 1000;
  world.faulty.part = 'node';
  world.chain.advance(3);
  await world.clock.run(50_000);
  expect(alarmsOf(world)).not.toContain('ingest.stalled:live');
  await world.clock.run(20_000);
  expect(alarmsOf(world)).toContain('ingest.stalled:live');

  world.faultRates.faults = 0;
  await world.clock.run(20_000);
  expect(alarmsOf(world)).toEqual([]);
  expect(messages(world).at(-1)?.block.height).toBe(world.chain.head());
});

test('says in the alarm of a stalled chunk that the node lacks the next block, as one that has pruned it', async () => {
  const world = createWorld({ seed: 3, base: 20, blocks: 30 });
  world.startIngester({ settings: { indexFrom: 0 } });
  await world.clock.run(65_000);
  expect([...world.store.alarms]).toEqual([
    [
      'ingest.stalled:live',
      'no progress for 60 s: the node lacks block 0 or one below it, and its newest is 49',
    ],
  ]);
});

test('raises no alarm while the chain has no new blocks', async () => {
  const world = createWorld({ seed: 2 });
  world.startIngester();
  await world.clock.run(600_000);
  expect(alarmsOf(world)).toEqual([]);
});

test('raises an alarm while the head of the node stays the same, also through failures of the node', async () => {
  const world = createWorld({ seed: 4 });
  const headStalled = ['node.head-stalled'];
  const former = world.startIngester({ settings: { headStallMs: 300_000 } });
  await world.clock.run(280_000);
  expect(alarmsOf(world)).toEqual([]);
  world.faultRates.faults = 200;
  world.faulty.part = 'node';
  await world.clock.run(15_000);
  world.faultRates.faults = 0;
  await world.clock.run(30_000);
  expect(alarmsOf(world)).toEqual(headStalled);
  expect(world.store.alarms.get('node.head-stalled')).toContain(`has been ${world.chain.head()} since`);

  world.chain.advance(1);
  await world.clock.run(10_000);
  expect(alarmsOf(world)).toEqual([]);

  await world.clock.run(310_000);
  expect(alarmsOf(world)).toEqual(headStalled);
  // The next writer does not know when the head has changed: it has that much time to do so again.
  void former.stop();
  await world.clock.run(10_000);
  world.startIngester({ settings: { headStallMs: 300_000 } });
  await world.clock.run(30_000);
  expect(alarmsOf(world)).toEqual([]);
  await world.clock.run(300_000);
  expect(alarmsOf(world)).toEqual(headStalled);
});

test('raises an alarm where a restart meets a node that still syncs below the index', async () => {
  const world = createWorld({ seed: 5 });
  const former = world.startIngester();
  await world.clock.run(30_000);
  void former.stop();
  await world.clock.run(10_000);
  let asked = 0;
  const blockHashAndNumber = async () => {
    asked += 1;
    const { height, hash } = world.chain.at(Math.min(Math.floor(asked / 100), 15))!.body;
    return { height, hash };
  };
  const behind = world.startIngester({ node: { blockHashAndNumber }, settings: { headStallMs: 300_000 } });
  await world.clock.run(310_000);
  expect(alarmsOf(world)).toEqual(['node.head-stalled']);
  void behind.stop();
  await world.clock.run(10_000);
  world.startIngester({ settings: { headStallMs: 300_000 } });
  await world.clock.run(30_000);
  expect(alarmsOf(world)).toEqual([]);
});

test('raises no alarm while the chain grows again below the height at which it was reverted', async () => {
  const world = createWorld({ seed: 6 });
  world.startIngester({ settings: { headStallMs: 300_000 } });
  world.chain.advance(30);
  await world.clock.run(60_000);
  const top = world.chain.head();
  world.chain.reorg(20, 1);
  for (let minute = 0; minute < 12; minute += 1) {
    await world.clock.run(60_000);
    expect(alarmsOf(world), `after ${minute} minutes`).toEqual([]);
    world.chain.advance(1);
  }
  expect(world.chain.head()).toBeLessThan(top);
});

describe('the head of a node that answers', () => {
  /** Reports heads to the health of a chunk, one a second; returns the alarms that are stored. */
  function watchHeads({ isHeaderAnswered = true, indexed = 0, alarm = '' }) {
    let now = 1_700_000_000_000;
    const clock: Clock = { ...systemClock, now: () => now, wallTime: () => now };
    const store = createSimStore(() => now);
    const metrics = createIngestMetrics(new Registry());
    const settings = { stallMs: 60_000, headStallMs: 300_000 };
    const health = createHealth({ store, clock, log, metrics, settings });
    health.watch('live');
    const earlier = alarm === '' ? undefined : store.raiseAlarm('node.head-stalled', alarm);
    const readTimestamp = async (): Promise<number> => {
      if (isHeaderAnswered) return now / 1000 - 302;
      throw new AppError('NODE_UNREACHABLE', 'no answer', { retryable: true });
    };
    return async (seconds: number, ...heads: readonly ([height: number, hash: bigint] | null)[]) => {
      await earlier;
      for (let second = 0; second < seconds; second += 1) {
        now += 1000;
        const head = heads[second % heads.length] ?? null;
        const point = head && { height: head[0], hash: toFelt(head[1]) };
        await health.headSeen('live', point, indexed, readTimestamp);
      }
      return [...store.alarms.values()];
    };
  }

  test.each([
    [true, '; its timestamp was 302 s ago when this alarm was raised'],
    [false, ''],
  ])('raises an alarm where it answers for the header: %s', async (isHeaderAnswered, age) => {
    const see = watchHeads({ isHeaderAnswered });
    expect(await see(300, [7, 7n])).toEqual([]);
    const since = '2023-11-14T22:13:21.000Z';
    expect(await see(1, [7, 7n])).toEqual([`the newest block of the node has been 7 since ${since}${age}`]);
  });

  test('raises an alarm while two nodes at one address stay at two heights, until one has a new block', async () => {
    const see = watchHeads({ isHeaderAnswered: true });
    expect(await see(300, [7, 7n], [5, 5n])).toEqual([]);
    expect(await see(1, [5, 5n])).toEqual([expect.stringContaining('has been 7 since')]);
    expect(await see(1, [6, 6n])).toHaveLength(1);
    // Replaces the block at the greatest height.
    expect(await see(1, [7, 8n])).toEqual([]);
    expect(await see(299, [7, 7n], [7, 8n])).toEqual([]);
    expect(await see(1, [7, 7n])).toHaveLength(1);
    expect(await see(1, [8, 9n])).toEqual([]);
  });

  const syncing = Array.from({ length: 300 }, (_, height): [number, bigint] => [height, BigInt(height)]);

  test.each(['', 'an alarm of an earlier process'])(
    'raises an alarm while all its blocks are new but below the index, until one is not: %o',
    async (alarm) => {
      const see = watchHeads({ indexed: 1000, alarm });
      expect(await see(300, ...syncing)).toEqual(alarm === '' ? [] : [alarm]);
      const detail =
        'the newest block of the node has been below the index (1000) since 2023-11-14T22:13:21.000Z; it was 300 when this alarm was raised';
      expect(await see(1, [300, 300n])).toEqual([detail]);
      expect(await see(1, [999, 999n])).toEqual([detail]);
      expect(await see(1, [1000, 1000n])).toEqual([]);
    },
  );

  test('raises an alarm while it has no block, until it has one at the index', async () => {
    const see = watchHeads({ indexed: 1000 });
    expect(await see(300, null)).toEqual([]);
    const detail =
      'the newest block of the node has been below the index (1000) since 2023-11-14T22:13:21.000Z; it had none when this alarm was raised';
    expect(await see(1, null)).toEqual([detail]);
    expect(await see(1, [999, 999n])).toEqual([detail]);
    expect(await see(1, [1000, 1000n])).toEqual([]);
  });

  test('raises no alarm while one of two nodes at one address is below the index', async () => {
    const see = watchHeads({ indexed: 1000, alarm: 'an alarm of an earlier process' });
    expect(await see(1, [998, 998n])).toHaveLength(1);
    expect(await see(1, [1000, 1000n])).toEqual([]);
    for (let height = 1001; height < 1010; height += 1) {
      expect(await see(100, [height - 2, BigInt(height - 2)], [height, BigInt(height)])).toEqual([]);
    }
  });
});

test('raises an alarm while the node has lost all blocks, but not before the first', async () => {
  const world = createWorld({ seed: 4, blocks: 30 });
  let isEmpty = true;
  world.startIngester({
    node: {
      blockHashAndNumber: async () => {
        const { height, hash } = world.chain.at(world.chain.head())!.body;
        return isEmpty ? null : { height, hash };
      },
    },
    settings: { headStallMs: 60_000 },
  });
  await world.clock.run(70_000);
  expect(alarmsOf(world)).toEqual([]);
  isEmpty = false;
  await world.clock.run(10_000);
  expect(alarmsOf(world)).toEqual([]);
  isEmpty = true;
  await world.clock.run(70_000);
  expect(alarmsOf(world)).toEqual(['node.head-stalled']);
  isEmpty = false;
  world.chain.advance(1);
  await world.clock.run(10_000);
  expect(alarmsOf(world)).toEqual([]);
});

test('raises no alarm while the chain grows towards the first height', async () => {
  const world = createWorld({ seed: 4, blocks: 30 });
  world.startIngester({ settings: { indexFrom: 60, headStallMs: 60_000 } });
  for (let height = 30; height < 50; height += 1) {
    await world.clock.run(10_000);
    world.chain.advance(1);
  }
  expect(alarmsOf(world)).toEqual([]);
  await world.clock.run(70_000);
  expect(world.store.alarms.get('node.head-stalled')).toContain('has been 49 since');
  world.chain.advance(20);
  await world.clock.run(10_000);
  expect(alarmsOf(world)).toEqual([]);
  expect(messages(world)[0]?.block.height).toBe(60);
});

test('raises an alarm while the node is unavailable at startup, and indexes when it is back', async () => {
  const world = createWorld({ seed: 3 });
  world.faultRates.faults = 1000;
  world.faulty.part = 'node';
  world.startIngester();
  await world.clock.run(90_000);
  expect(alarmsOf(world)).toEqual(['ingest.stalled:start']);
  world.faultRates.faults = 0;
  await world.clock.run(60_000);
  expect(alarmsOf(world)).toEqual([]);
  expect(new Set(messages(world).map(({ block }) => block.height)).size).toBe(world.chain.blocks().length);
});

test('raises an alarm while the node answers, but not for the height accepted on L1', async () => {
  const world = createWorld({ seed: 3, blocks: 30 });
  const start = world.clock.now();
  const refusesAt = (ms: number): boolean => ms >= 10_000 && ms < 90_000;
  world.startIngester({
    node: {
      l1Accepted: async () => {
        if (refusesAt(world.clock.now() - start))
          throw new RpcError('header', -32602, 'Invalid params', null);
        return null;
      },
    },
  });
  await world.clock.run(65_000);
  expect(alarmsOf(world)).toEqual([]);
  await world.clock.run(20_000);
  expect([...world.store.alarms]).toEqual([
    ['node.l1-unavailable', 'no answer for 60 s: NODE_ERROR: header: Invalid params (-32602)'],
  ]);
  await world.clock.run(10_000);
  expect(alarmsOf(world)).toEqual([]);
});

test('clears the alarms of contracts when the live chunk goes on after a failure', async () => {
  const world = createWorld({ seed: 4 });
  world.startIngester();
  await world.clock.run(60_000);
  // The block that needed the contract was reorged away, so that no look-up of it will succeed.
  await world.store.raiseAlarm('contract.unclassified:0x1', 'no answer');
  world.chain.advance(1);
  world.faulty.part = 'node';
  world.faultRates.faults = 1000;
  await world.clock.run(1000);
  world.faultRates.faults = 0;
  await world.clock.run(60_000);
  expect(alarmsOf(world)).toEqual([]);
});

/** A process that was frozen past its lease, and its successor; both change alarms. */
async function twoHolders() {
  let now = 1_700_000_000_000;
  const clock: Clock = { ...systemClock, now: () => now };
  const store = createSimStore(() => now);
  await store.createChunks([{ name: 'live', start: 0, end: null, finalHash: null }]);
  const startHolder = async (holder: string) => {
    const grant = await store.acquire({ name: 'live', holder, ttlMs: 5000, nowMs: now, reserve: 10 });
    if (grant === null) throw new Error('lease not granted');
    const metrics = createIngestMetrics(new Registry());
    const health = createHealth({
      store,
      clock,
      log,
      metrics,
      settings: { stallMs: 60_000, headStallMs: 0 },
    });
    health.watch('live', { name: 'live', epoch: grant.epoch });
    await health.progress('live');
    return health;
  };
  return { store, startHolder, advance: (ms: number) => (now += ms) };
}

test('a stale lease holder raises no alarm, because its successor would not clear it', async () => {
  const { store, startHolder, advance } = await twoHolders();
  const former = await startHolder('former');
  advance(70_000);
  const successor = await startHolder('successor');
  // The former holder resumes before it notices that the lease is lost.
  await former.check();
  await former.failed('live', new Error('a bug'), 1);
  expect([...store.alarms]).toEqual([]);

  advance(70_000);
  await successor.check();
  expect([...store.alarms.keys()]).toEqual(['ingest.stalled:live']);
});

test('a stale lease holder clears no alarm, because its successor would not raise it again', async () => {
  const { store, startHolder, advance } = await twoHolders();
  const former = await startHolder('former');
  await former.failed('live', new Error('a bug'), 1);
  advance(70_000);
  const successor = await startHolder('successor');
  advance(70_000);
  await successor.check();
  await successor.failed('live', new Error('a bug'), 1);
  const raised = ['ingest.stalled:live', 'ingest.failing:live'];
  expect([...store.alarms.keys()]).toEqual(raised);
  // The former holder resumes with an old answer, which it takes for progress.
  await former.progress('live');
  expect([...store.alarms.keys()]).toEqual(raised);

  await successor.progress('live');
  expect([...store.alarms]).toEqual([]);
});
