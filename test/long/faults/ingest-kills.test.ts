import { expect, test } from 'vitest';

import { dropReverted, moveCursor, produceTo } from '../../support/faults/points.ts';
import type { Role, Server } from '../../support/faults/role.ts';
import type { Trap } from '../../support/faults/proxy.ts';
import { faultWorld } from '../../support/faults/world.ts';
import type { FaultWorld } from '../../support/faults/world.ts';

/**
 * `kill -9` of the ingester process between recording, publishing and moving the cursor, and while it reverts a fork. At its
 * restart the node serves another fork, a shorter one, or the previous one again. In the end log and tables match the
 * canonical chain. (test/long/pipeline/ingest-crash.test.ts covers every call of the ingester, in process.)
 *
 * Each test has its own stores and mostly waits: the lease of a dead writer expires after 10 s.
 */

interface Point {
  readonly at: string;
  readonly server: Server;
  readonly trap: Pick<Trap, 'request' | 'act'>;
}

const recorded: Point = {
  at: 'before publishing',
  server: 'kafka',
  trap: { request: produceTo('chain.blocks'), act: 'hold' },
};
const stored: Point = {
  at: 'after Kafka stored the blocks, before the acknowledgement',
  server: 'kafka',
  trap: { request: produceTo('chain.blocks'), act: 'lose-answer' },
};
const published: Point = {
  at: 'between publishing and the cursor',
  server: 'postgres',
  trap: { request: moveCursor, act: 'hold' },
};
const moved: Point = {
  at: 'after the cursor moved, before the acknowledgement',
  server: 'postgres',
  trap: { request: moveCursor, act: 'lose-answer' },
};
const reverted: Point = {
  at: 'after the reverts were published',
  server: 'postgres',
  trap: { request: dropReverted, act: 'hold' },
};

/** Changes the node's chain before the ingester restarts. */
type Meanwhile = (world: FaultWorld) => void;
const nothing: Meanwhile = () => {};
const anotherFork: Meanwhile = ({ node }) =>
  void node.control({ command: 'reorg', depth: 8, length: 9, share: 0.3, events: 'more' });
const shorterFork: Meanwhile = ({ node }) =>
  void node.control({ command: 'reorg', depth: 8, length: 2, events: 'fewer' });
const oldFork: Meanwhile = ({ node }) => {
  node.control({ command: 'switch', fork: 0 });
  node.control({ command: 'advance', blocks: 2 });
};

async function killAt({ server, trap }: Point, ingest: Role, proceed: () => void): Promise<void> {
  const caught = ingest.proxies[server].trap({ ...trap, onSprung: trap.act === 'hold' ? kill : () => {} });
  function kill(): void {
    ingest.signal('SIGKILL');
  }
  proceed();
  await caught.sprung;
  kill();
  expect(await ingest.ended).toBe('SIGKILL');
}

async function scenario(seed: string, point: Point, step: Meanwhile, meanwhile: Meanwhile): Promise<void> {
  const world = await faultWorld({ seed, initialHead: 60 });
  try {
    world.node.control({ command: 'setL1', height: 20 });
    const [ingest] = await Promise.all([world.start('ingest'), world.start('project')]);
    await world.settled();
    await killAt(point, ingest, () => step(world));
    meanwhile(world);
    await world.start('ingest');
    await world.settled();
    expect(await world.differences()).toEqual([]);
  } finally {
    await world.close();
  }
}

const grow: Meanwhile = ({ node }) => void node.control({ command: 'advance', blocks: 3 });
const fork: Meanwhile = ({ node }) =>
  void node.control({ command: 'reorg', depth: 20, length: 22, share: 0, events: 'fewer' });

test.concurrent.each([
  { ...recorded, meanwhile: nothing, node: 'the same chain' },
  { ...stored, meanwhile: shorterFork, node: 'a shorter fork' },
  { ...published, meanwhile: anotherFork, node: 'another fork' },
])('recovers from a kill $at, when the node then serves $node', async ({ meanwhile, ...point }) => {
  await scenario(`follow: ${point.at}`, point, grow, meanwhile);
});

test.concurrent.each([
  { ...recorded, meanwhile: anotherFork, node: 'another fork' },
  { ...stored, meanwhile: oldFork, node: 'the previous fork again' },
  { ...reverted, meanwhile: shorterFork, node: 'a shorter fork' },
])(
  'recovers from a kill in a reorg $at, when the node then serves $node',
  async ({ meanwhile, ...point }) => {
    await scenario(`revert: ${point.at}`, point, fork, meanwhile);
  },
);

test.concurrent('recovers from a kill in backfill after the cursor moved, before the acknowledgement', async () => {
  const world = await faultWorld({ seed: 'backfill', initialHead: 900 });
  try {
    world.node.control({ command: 'setL1', height: 880 });
    const settings = { BACKFILL_CHUNK_BLOCKS: '300' };
    await world.start('project');
    // Slows the node, so that the kill hits the backfill.
    world.node.control({ command: 'fault', fault: { kind: 'latency', ms: 20 } });
    const ingest = await world.start('ingest', settings);
    await killAt(moved, ingest, () => {});
    world.node.control({ command: 'clearFaults' });
    await world.start('ingest', settings);
    await world.settled();
    expect(await world.differences()).toEqual([]);
  } finally {
    await world.close();
  }
});
