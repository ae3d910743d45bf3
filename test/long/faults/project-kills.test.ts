import { expect, test } from 'vitest';

import { checkpointOf, insertInto } from '../../support/faults/points.ts';
import type { Role } from '../../support/faults/role.ts';
import { faultWorld } from '../../support/faults/world.ts';
import type { FaultWorld } from '../../support/faults/world.ts';
import { eventually } from '../../support/service.ts';

/**
 * `kill -9` of the projector at every step of writing a batch. The node serves another fork when it restarts. Repeated,
 * partial or missing writes end in tables that match the canonical chain.
 *
 * Each test has its own stores and mostly waits: the partitions of a dead member are reassigned after 12 s.
 */

interface Point {
  readonly name: string;
  /** Resolves when the projector stands at the point; it is killed there. */
  readonly reach: (world: FaultWorld, project: Role) => Promise<void>;
}

/** What the checkpoints of a topic say, each value once. */
const checkpoints = async (world: FaultWorld, topic = 'chain.blocks'): Promise<number[]> => {
  const { rows } = await world.pool.query<{ next_offset: number }>(
    'SELECT DISTINCT next_offset FROM tds.projection_checkpoints WHERE topic = $1 AND partition = 0 ORDER BY 1',
    [topic],
  );
  return rows.map(({ next_offset }) => next_offset);
};
/** Holds the inserts of every batch that can be in flight. */
const holdInserts = (project: Role, table: string): Promise<void> => {
  const traps = [1, 2].map(() =>
    project.proxies.clickhouse.trap({ request: insertInto(table), act: 'hold' }),
  );
  return Promise.race(traps.map(({ sprung }) => sprung));
};
const visible = async (world: FaultWorld, table: string): Promise<void> =>
  await eventually(async () => expect(await world.count(table)).toBeGreaterThan(0));

const whileFollowing: readonly Point[] = [
  {
    name: 'between two tables of a batch',
    reach: async (world, project) => {
      await holdInserts(project, 'account_ledger');
      await visible(world, 'transfers');
      project.signal('SIGKILL');
      expect(await world.count('account_ledger')).toBe(0);
      expect(await checkpoints(world)).toEqual([0]);
    },
  },
  {
    name: 'between a table and what is derived from it',
    reach: async (world, project) => {
      await holdInserts(project, 'transfer_counts');
      await visible(world, 'transfer_counts_by_block');
      project.signal('SIGKILL');
      expect(await world.count('transfer_counts')).toBe(0);
      expect(await checkpoints(world)).toEqual([0]);
    },
  },
  {
    name: 'after all tables but the one that tells what is indexed',
    reach: async (world, project) => {
      await holdInserts(project, 'indexed_blocks');
      project.signal('SIGKILL');
      for (const table of ['transfers', 'account_ledger', 'transfer_counts', 'tx_index']) {
        expect(await world.count(table), table).toBeGreaterThan(0);
      }
      expect(await world.count('indexed_blocks')).toBe(0);
    },
  },
  {
    name: 'after the acknowledgement of ClickHouse, before the checkpoint',
    reach: async (world, project) => {
      const request = checkpointOf('chain.blocks');
      const held = project.proxies.postgres.trap({ request, act: 'hold' });
      await held.sprung;
      project.signal('SIGKILL');
      expect(await world.count('indexed_blocks')).toBeGreaterThan(0);
      expect(await checkpoints(world)).toEqual([0]);
    },
  },
  {
    name: 'after the checkpoint, before its acknowledgement',
    reach: async (world, project) => {
      const request = checkpointOf('chain.blocks');
      await project.proxies.postgres.trap({ request, act: 'lose-answer' }).sprung;
      project.signal('SIGKILL');
      expect((await checkpoints(world)).at(-1)).toBeGreaterThan(0);
    },
  },
  {
    name: 'inside the transaction of a fold, after its checkpoint',
    reach: async (world, project) => {
      const request = checkpointOf('chain.status');
      await project.proxies.postgres.trap({ request, act: 'lose-answer' }).sprung;
      project.signal('SIGKILL');
      expect(await checkpoints(world, 'chain.status')).toEqual([0]);
    },
  },
];

test.concurrent.each(whileFollowing)('recovers from a kill $name', async ({ name, reach }) => {
  const world = await faultWorld({ seed: `project: ${name}`, initialHead: 60 });
  try {
    world.node.control({ command: 'setL1', height: 30 });
    const project = await world.start('project');
    const killed = reach(world, project);
    await world.start('ingest');
    await killed;
    expect(await project.ended).toBe('SIGKILL');
    world.node.control({ command: 'reorg', depth: 12, length: 15, events: 'fewer' });
    await world.start('project');
    await world.settled();
    expect(await world.differences()).toEqual([]);
  } finally {
    await world.close();
  }
});

test.concurrent('recovers from a kill in the middle of a revert', async () => {
  const world = await faultWorld({ seed: 'project: revert', initialHead: 60 });
  try {
    world.node.control({ command: 'setL1', height: 10 });
    const [project] = await Promise.all([world.start('project'), world.start('ingest')]);
    await world.settled();
    const before = await world.count('transfers');
    const held = project.proxies.clickhouse.trap({ request: insertInto('account_feed'), act: 'hold' });
    // Nothing of the orphans lands again: every one of their rows has to go.
    world.node.control({ command: 'reorg', depth: 40, length: 3, share: 0, events: 'fewer' });
    await held.sprung;
    await eventually(async () => expect(await world.count('transfers')).toBeLessThan(before));
    project.signal('SIGKILL');
    await project.ended;
    expect((await world.differences()).join()).toContain('account_feed unexpected');
    world.node.control({ command: 'advance', blocks: 5 });
    await world.start('project');
    await world.settled();
    expect(await world.differences()).toEqual([]);
  } finally {
    await world.close();
  }
});
