import { expect, test } from 'vitest';

import { topics } from '../../../schemas/topics.ts';
import { foldInto, insertInto } from '../../support/faults/points.ts';
import type { Role } from '../../support/faults/role.ts';
import { faultWorld } from '../../support/faults/world.ts';
import { eventually } from '../../support/service.ts';

/** Rows of the account feed that ClickHouse has acknowledged to this process. */
async function rowsWritten(project: Role): Promise<number> {
  const line = /tds_projection_rows_total\{[^}]*"account-feed"[^}]*\} (\d+)/.exec(await project.metrics());
  return Number(line?.[1] ?? 0);
}

/** Partitions that change hands, at the worst moment and again and again: every message has its effect once. */

test.concurrent('a projector paused beyond its session writes nothing after another took its partitions', async () => {
  const world = await faultWorld({ seed: 'paused', initialHead: 50 });
  try {
    world.node.control({ command: 'setL1', height: 10 });
    const [first] = await Promise.all([world.start('project'), world.start('ingest')]);
    await world.settled();
    // It stands with a batch half written: one table has it, the rows of the other are still on their way.
    const before = await world.count('transfers');
    const held = first.proxies.clickhouse.trap({ request: insertInto('account_feed'), act: 'hold' });
    world.node.control({ command: 'advance', blocks: 4 });
    await held.sprung;
    await eventually(async () => expect(await world.count('transfers')).toBeGreaterThan(before));
    const written = await rowsWritten(first);
    first.signal('SIGSTOP');

    // The blocks of that batch are orphans by the time another has projected them and taken them back.
    await world.start('project');
    world.node.control({ command: 'reorg', depth: 8, length: 6, share: 0.2, events: 'fewer' });
    await world.settled();
    expect(await world.differences()).toEqual([]);

    held.release();
    first.signal('SIGCONT');
    // Its old rows have come to the table after all, behind the newer ones.
    await eventually(async () => expect(await rowsWritten(first)).toBeGreaterThan(written));
    expect(await world.differences()).toEqual([]);
    world.node.control({ command: 'advance', blocks: 5 });
    await world.settled();
    expect(await world.differences()).toEqual([]);
    expect(first.isRunning()).toBe(true);
  } finally {
    await world.close();
  }
});

test.concurrent('tables stay correct when a projector is paused within a fold, holding its locks', async () => {
  const world = await faultWorld({ seed: 'paused fold', initialHead: 20 });
  try {
    world.node.control({ command: 'setL1', height: 5 });
    const [first] = await Promise.all([world.start('project'), world.start('ingest')]);
    await world.settled();
    const held = first.proxies.postgres.trap({ request: foldInto('chain-status'), act: 'hold' });
    world.node.control({ command: 'setL1', height: 10 });
    await held.sprung;
    first.signal('SIGSTOP');
    world.node.control({ command: 'advance', blocks: 2 });
    await world.start('project');
    await world.settled();
    expect(await world.differences()).toEqual([]);
    held.release();
    first.signal('SIGCONT');
    world.node.control({ command: 'setL1', height: 12 });
    world.node.control({ command: 'advance', blocks: 2 });
    await world.settled();
    expect(await world.differences()).toEqual([]);
    expect(first.isRunning()).toBe(true);
  } finally {
    await world.close();
  }
});

test.concurrent('tables stay correct while members join and leave the group', async () => {
  // Heights in four partitions.
  const world = await faultWorld({ seed: 'storm', initialHead: 3300, transfersPerBlock: 5 });
  try {
    world.node.control({ command: 'setL1', height: 3250 });
    await Promise.all([world.start('project'), world.start('project')]);
    await world.start('ingest', { BACKFILL_CHUNK_BLOCKS: '900' });
    const visit = async (): Promise<void> => {
      const guest = await world.kafka.consume({
        groupId: 'project-chain.blocks',
        topics: [topics.chainBlocks],
        startAt: async () => 0,
        onBatch: async () => {},
        onCrash: () => {},
      });
      await new Promise((resolve) => setTimeout(resolve, 500));
      await guest.stop();
    };
    // A join waits for the others' heartbeats, so that visits overlap.
    const visits: Promise<void>[] = [];
    for (let round = 0; round < 15; round += 1) {
      visits.push(visit());
      if (round % 3 === 0) world.node.control({ command: 'reorg', depth: 20, length: 22 });
      else world.node.control({ command: 'advance', blocks: 3 });
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
    await Promise.all(visits);
    await world.settled();
    expect(await world.differences()).toEqual([]);
  } finally {
    await world.close();
  }
});
