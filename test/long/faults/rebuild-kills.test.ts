import { expect, test } from 'vitest';

import { servedBuilds } from '../../../projections/served.ts';
import { checkpointOf, commit, insertInto, swapBuilds } from '../../support/faults/points.ts';
import { startRole } from '../../support/faults/role.ts';
import type { Role } from '../../support/faults/role.ts';
import { faultWorld } from '../../support/faults/world.ts';
import { eventually } from '../../support/service.ts';

/**
 * `kill -9` of a rebuild at every point, beside a projector that goes on writing. What is served is one build or the
 * other, whole; the next rebuild finds its way.
 */

const TABLES = ['transfers', 'account-ledger', 'transfer-counts', 'token-holders', 'period-stats'];

interface Point {
  readonly name: string;
  readonly reach: (rebuild: Role) => Promise<void>;
  /** What is served when it is dead. */
  readonly served: 1 | 2;
}
const points: readonly Point[] = [
  {
    name: 'while it fills a table',
    served: 1,
    reach: async ({ proxies }) =>
      await proxies.clickhouse.trap({ request: insertInto('account_ledger'), act: 'hold' }).sprung,
  },
  {
    name: 'between ClickHouse’s acknowledgement and its checkpoint',
    served: 1,
    reach: async ({ proxies }) =>
      await proxies.postgres.trap({ request: checkpointOf('chain.blocks'), act: 'hold' }).sprung,
  },
  {
    name: 'in the middle of the swap',
    served: 1,
    reach: async ({ proxies }) =>
      await proxies.postgres.trap({ request: swapBuilds, act: 'lose-answer' }).sprung,
  },
  {
    name: 'before the end of the swap',
    served: 1,
    reach: async ({ proxies }) =>
      await proxies.postgres.trap({ request: swapBuilds, nth: TABLES.length, act: 'hold' }).sprung,
  },
  {
    name: 'when the swap is done, before its acknowledgement',
    served: 2,
    reach: async ({ proxies }) => {
      const held = proxies.postgres.trap({ request: swapBuilds, nth: TABLES.length, act: 'hold' });
      await held.sprung;
      const ended = proxies.postgres.trap({ request: commit, act: 'lose-answer' });
      held.release();
      await ended.sprung;
    },
  },
];

test.concurrent.each(points)('rebuild recovers from a kill $name', async ({ name, reach, served }) => {
  const world = await faultWorld({ seed: `rebuild: ${name}`, initialHead: 60 });
  try {
    await world.start('project');
    await world.start('ingest');
    await world.settled();
    const rebuild = await startRole('rebuild', world.env, TABLES);
    await reach(rebuild);
    rebuild.signal('SIGKILL');
    expect(await rebuild.ended).toBe('SIGKILL');
    await rebuild.stop();
    // Its locks go with its connections, and the writers with them.
    world.node.control({ command: 'reorg', depth: 8, length: 12 });
    await world.settled();
    expect(await world.differences()).toEqual([]);
    for (const table of ['transfers', 'account_ledger', 'transfer_counts']) {
      expect((await servedBuilds(world.pool)).table(table)).toMatch(new RegExp(`_b${served}$`));
    }

    const again = await startRole('rebuild', world.env, TABLES);
    expect(await again.ended, again.output()).toBe('code 0');
    await again.stop();
    expect(again.output()).not.toContain('DIFFERENT');
    await eventually(async () => expect(await world.differences()).toEqual([]));
  } finally {
    await world.close();
  }
});

test.concurrent('a rebuild frozen in the swap blocks no writer, and swaps nothing when it wakes', async () => {
  const world = await faultWorld({ seed: 'rebuild: frozen', initialHead: 60 });
  try {
    await world.start('project');
    await world.start('ingest');
    await world.settled();
    const rebuild = await startRole('rebuild', world.env, TABLES);
    const held = rebuild.proxies.postgres.trap({ request: swapBuilds, nth: 2, act: 'hold' });
    await held.sprung;
    rebuild.signal('SIGSTOP');
    held.release();
    world.node.control({ command: 'reorg', depth: 8, length: 12 });
    await world.settled();
    expect(await world.differences()).toEqual([]);
    rebuild.signal('SIGCONT');
    expect(await rebuild.ended).not.toBe('code 0');
    await rebuild.stop();
    expect((await servedBuilds(world.pool)).table('transfers')).toMatch(/_b1$/);
    await world.settled();
    expect(await world.differences()).toEqual([]);
  } finally {
    await world.close();
  }
});

test.concurrent('a projector frozen in a batch blocks no swap, and writes nothing wrong when it wakes', async () => {
  const world = await faultWorld({ seed: 'rebuild: frozen writer', initialHead: 60 });
  try {
    const frozen = await world.start('project');
    await world.start('ingest');
    await world.settled();
    const held = frozen.proxies.clickhouse.trap({ request: insertInto('account_ledger'), act: 'hold' });
    world.node.control({ command: 'advance', blocks: 5 });
    await held.sprung;
    frozen.signal('SIGSTOP');
    await world.start('project');
    const rebuild = await startRole('rebuild', world.env, TABLES);
    expect(await rebuild.ended, rebuild.output()).toBe('code 0');
    await rebuild.stop();
    expect((await servedBuilds(world.pool)).table('transfers')).toMatch(/_b2$/);
    held.release();
    frozen.signal('SIGCONT');
    world.node.control({ command: 'reorg', depth: 8, length: 12 });
    await world.settled();
    expect(await world.differences()).toEqual([]);
  } finally {
    await world.close();
  }
});
