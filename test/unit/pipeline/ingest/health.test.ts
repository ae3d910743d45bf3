import { expect, test } from 'vitest';

import { createSimWorld } from '../../../support/sim-world.ts';

const alarmsOf = ({ store }: ReturnType<typeof createSimWorld>): string[] =>
  [...store.alarms.keys()].toSorted();

test('no progress while there is work is an alarm, once, until there is progress again', async () => {
  const world = createSimWorld(1);
  world.start();
  await world.clock.run(30_000);
  expect(alarmsOf(world)).toEqual([]);

  // The node loses every answer: the head may move, nobody knows.
  world.weather.faults = 1000;
  world.faulty = 'node';
  world.chain.advance(3);
  await world.clock.run(50_000);
  expect(alarmsOf(world)).not.toContain('ingest.stalled:live');
  await world.clock.run(20_000);
  expect(alarmsOf(world)).toContain('ingest.stalled:live');

  world.weather.faults = 0;
  await world.clock.run(20_000);
  expect(alarmsOf(world)).toEqual([]);
  expect(world.log.at(-1)?.block.height).toBe(world.chain.blocks().length - 1);
  await world.stop();
});

test('a chain that stands still is no stall', async () => {
  const world = createSimWorld(2);
  world.start();
  await world.clock.run(600_000);
  expect(alarmsOf(world)).toEqual([]);
  await world.stop();
});

test('a node that is away at the start is an alarm, and indexing begins when it is back', async () => {
  const world = createSimWorld(3);
  world.weather.faults = 1000;
  world.faulty = 'node';
  world.start();
  await world.clock.run(90_000);
  expect(alarmsOf(world)).toEqual(['ingest.stalled:start']);
  world.weather.faults = 0;
  await world.clock.run(60_000);
  expect(alarmsOf(world)).toEqual([]);
  expect(new Set(world.log.map(({ block }) => block.height)).size).toBe(world.chain.blocks().length);
  await world.stop();
});
