import { Registry } from 'prom-client';
import { expect, test } from 'vitest';

import { systemClock } from '../../../../infra/clock.ts';
import type { Clock } from '../../../../infra/clock.ts';
import { createHealth } from '../../../../pipeline/ingest/health.ts';
import { createIngestMetrics } from '../../../../pipeline/ingest/metrics.ts';
import { topics } from '../../../../schemas/topics.ts';
import { createSimStore } from '../../../simulate/ingest-store.ts';
import { log } from '../../../simulate/stage.ts';
import { createWorld } from '../../../simulate/world.ts';
import type { SimWorld } from '../../../simulate/world.ts';

const alarmsOf = ({ store }: SimWorld): string[] => [...store.alarms.keys()].toSorted();
const messages = ({ broker }: SimWorld) => broker.messages(topics.chainBlocks);

test('no progress while there is work is an alarm, once, until there is progress again', async () => {
  const world = createWorld({ seed: 1 });
  world.startIngester();
  await world.clock.run(30_000);
  expect(alarmsOf(world)).toEqual([]);

  // The node loses every answer: the head may move, nobody knows.
  world.weather.faults = 1000;
  world.faulty.part = 'node';
  world.chain.advance(3);
  await world.clock.run(50_000);
  expect(alarmsOf(world)).not.toContain('ingest.stalled:live');
  await world.clock.run(20_000);
  expect(alarmsOf(world)).toContain('ingest.stalled:live');

  world.weather.faults = 0;
  await world.clock.run(20_000);
  expect(alarmsOf(world)).toEqual([]);
  expect(messages(world).at(-1)?.block.height).toBe(world.chain.head());
});

test('a chain that stands still is no stall', async () => {
  const world = createWorld({ seed: 2 });
  world.startIngester();
  await world.clock.run(600_000);
  expect(alarmsOf(world)).toEqual([]);
});

test('a node that is away at the start is an alarm, and indexing begins when it is back', async () => {
  const world = createWorld({ seed: 3 });
  world.weather.faults = 1000;
  world.faulty.part = 'node';
  world.startIngester();
  await world.clock.run(90_000);
  expect(alarmsOf(world)).toEqual(['ingest.stalled:start']);
  world.weather.faults = 0;
  await world.clock.run(60_000);
  expect(alarmsOf(world)).toEqual([]);
  expect(new Set(messages(world).map(({ block }) => block.height)).size).toBe(world.chain.blocks().length);
});

/** A process that held the lease until it was frozen, and the one that took it over; both write what they think. */
async function twoHolders() {
  let now = 1_700_000_000_000;
  const clock: Clock = { ...systemClock, now: () => now };
  const store = createSimStore(() => now);
  await store.createChunks([{ name: 'live', start: 0, end: null, finalHash: null }]);
  const begin = async (holder: string) => {
    const grant = await store.acquire({ name: 'live', holder, ttlMs: 5000, nowMs: now, reserve: 10 });
    if (grant === null) throw new Error('the lease is free');
    const metrics = createIngestMetrics(new Registry());
    const health = createHealth({ store, clock, log, metrics, settings: { stallMs: 60_000 } });
    health.watch('live', { name: 'live', epoch: grant.epoch });
    await health.progress('live');
    return health;
  };
  return { store, begin, later: (ms: number) => (now += ms) };
}

test('a process that was frozen past its lease raises no alarm that its successor would not clear', async () => {
  const { store, begin, later } = await twoHolders();
  const former = await begin('former');
  later(70_000);
  const successor = await begin('successor');
  // It wakes, and does not know yet that its lease is lost.
  await former.check();
  await former.alarm('live', 'a bug');
  expect([...store.alarms]).toEqual([]);

  later(70_000);
  await successor.check();
  expect([...store.alarms.keys()]).toEqual(['ingest.stalled:live']);
});

test('nor does it clear an alarm that its successor would not raise again', async () => {
  const { store, begin, later } = await twoHolders();
  const former = await begin('former');
  await former.alarm('live', 'a bug');
  later(70_000);
  const successor = await begin('successor');
  later(70_000);
  await successor.check();
  await successor.alarm('live', 'a bug');
  const raised = ['ingest.stalled:live', 'ingest.failing:live'];
  expect([...store.alarms.keys()]).toEqual(raised);
  // It wakes, and an answer of long ago is progress.
  await former.progress('live');
  expect([...store.alarms.keys()]).toEqual(raised);

  await successor.progress('live');
  expect([...store.alarms]).toEqual([]);
});
