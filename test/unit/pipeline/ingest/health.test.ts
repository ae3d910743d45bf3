import { expect, test } from 'vitest';

import { topics } from '../../../../schemas/topics.ts';
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
