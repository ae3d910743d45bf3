import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';

import { topics } from '../../../schemas/topics.ts';
import {
  checkpointOf,
  commit,
  insertInto,
  moveCursor,
  produceTo,
  record,
} from '../../support/faults/points.ts';
import type { Weather } from '../../support/faults/proxy.ts';
import type { Role, Server } from '../../support/faults/role.ts';
import { faultWorld } from '../../support/faults/world.ts';
import type { FaultWorld } from '../../support/faults/world.ts';
import { eventually } from '../../support/service.ts';

/**
 * Requests are carried out but their answers are lost, or connections are slow, silent or cut. The processes keep running,
 * and nothing is lost or duplicated.
 */

let world: FaultWorld;
let ingest: Role;
let project: Role;

beforeAll(async () => {
  world = await faultWorld({ seed: 'lost answers', initialHead: 40 });
  world.node.control({ command: 'setL1', height: 20 });
  [ingest, project] = await Promise.all([world.start('ingest'), world.start('project')]);
  await world.settled();
});
afterAll(async () => await world?.close());
beforeEach(() => expect([ingest.isRunning(), project.isRunning()]).toEqual([true, true]));

/** Number of messages in chain.blocks, over all partitions. */
const logLength = async (): Promise<number> =>
  (await world.kafka.offsets(topics.chainBlocks)).reduce((sum, { high }) => sum + high, 0);

describe('loses and duplicates nothing when an answer is lost', () => {
  test.each(['transfers', 'account_ledger', 'transfer_counts', 'indexed_blocks'])(
    'of ClickHouse, after an insert into %s',
    async (table) => {
      const trap = project.proxies.clickhouse.trap({ request: insertInto(table), act: 'lose-answer' });
      world.node.control({ command: 'reorg', depth: 6, length: 8 });
      await trap.sprung;
      await world.settled();
      expect(await world.differences()).toEqual([]);
    },
  );

  test('of PostgreSQL, after it moved the checkpoint of ClickHouse tables', async () => {
    const request = checkpointOf('chain.blocks');
    const trap = project.proxies.postgres.trap({ request, act: 'lose-answer' });
    world.node.control({ command: 'advance', blocks: 3 });
    await trap.sprung;
    // The projector resumes at the stored checkpoint.
    world.node.control({ command: 'advance', blocks: 3 });
    await world.settled();
    expect(await world.differences()).toEqual([]);
  });

  test('of PostgreSQL, after it committed a fold', async () => {
    const trap = project.proxies.postgres.trap({ request: commit, act: 'lose-answer' });
    world.node.control({ command: 'setL1', height: world.node.ledger.l1() + 2 });
    world.node.control({ command: 'advance', blocks: 2 });
    await trap.sprung;
    await world.settled();
    expect(await world.differences()).toEqual([]);
  });

  test('of Kafka, after it stored blocks: the broker deduplicates the retry', async () => {
    const before = await logLength();
    const request = produceTo('chain.blocks');
    const trap = ingest.proxies.kafka.trap({ request, act: 'lose-answer' });
    world.node.control({ command: 'advance', blocks: 3 });
    await trap.sprung;
    await world.settled();
    expect(await logLength()).toBe(before + 3);
    expect(await world.differences()).toEqual([]);
  });

  test.each([
    ['recorded a block', record],
    ['moved the cursor', moveCursor],
  ])('of Postgres, after it %s', async (_, request) => {
    const trap = ingest.proxies.postgres.trap({ request, act: 'lose-answer' });
    world.node.control({ command: 'reorg', depth: 3, length: 5 });
    await trap.sprung;
    await world.settled();
    expect(await world.differences()).toEqual([]);
  });
});

describe('loses and duplicates nothing when connections', () => {
  const all: readonly Server[] = ['kafka', 'clickhouse', 'postgres', 'node'];
  const under = async (weather: Weather, ms: number): Promise<void> => {
    const proxies = [ingest, project].flatMap((role) => all.map((server) => role.proxies[server]));
    for (const proxy of proxies) proxy.weather(weather);
    for (let round = 0; round < 5; round += 1) {
      await new Promise((resolve) => setTimeout(resolve, ms / 5));
      if (round % 2 === 0) world.node.control({ command: 'advance', blocks: 2 });
      else world.node.control({ command: 'reorg', depth: 4, length: 5 });
    }
    for (const proxy of proxies) proxy.weather({});
    if (weather.halfOpen === true) for (const proxy of proxies) proxy.reset();
  };

  test.each<[string, Weather, number]>([
    ['are slow', { latencyMs: 40 }, 2500],
    ['are silent', { halfOpen: true }, 4000],
    ['are refused', { refuse: true }, 2500],
    ['are cut in the middle of an answer', { cutAfterBytes: 3000 }, 2500],
  ])('%s', async (_, weather, ms) => {
    await under(weather, ms);
    if (weather.refuse === true || weather.cutAfterBytes !== undefined) {
      for (const role of [ingest, project]) for (const server of all) role.proxies[server].reset();
    }
    await world.settled();
    expect(await world.differences()).toEqual([]);
  });

  test('are all cut again and again', async () => {
    for (let round = 0; round < 12; round += 1) {
      world.node.control({ command: 'advance', blocks: 1 });
      await new Promise((resolve) => setTimeout(resolve, 150));
      for (const role of [ingest, project]) role.proxies[all[round % 4] ?? 'kafka'].reset();
    }
    await eventually(async () => expect(project.isRunning()).toBe(true));
    await world.settled();
    expect(await world.differences()).toEqual([]);
  });
});
