import { afterAll, beforeAll, expect, test } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { inspector } from '../../support/faults/inspect.ts';
import { startLaggingReplicas } from '../../support/faults/lagging-replicas.ts';
import type { LaggingReplicas } from '../../support/faults/lagging-replicas.ts';
import type { Role } from '../../support/faults/role.ts';
import { faultWorld } from '../../support/faults/world.ts';
import type { FaultWorld } from '../../support/faults/world.ts';
import { tds } from '../../support/tds.ts';

/**
 * The service on a cluster of ClickHouse whose second replica is late (support/faults/lagging-replicas.ts): what reads what
 * was written, reads all of it.
 */

const HEAD = 30;
const LAG_MS = 1000;
let replicas: LaggingReplicas;
let world: FaultWorld;
let project: Role;

const worldOn = async (seed: string): Promise<FaultWorld> => {
  const { url, cluster } = replicas;
  const made = await faultWorld(
    { seed, initialHead: HEAD },
    { CLICKHOUSE_URL: url, CLICKHOUSE_CLUSTER: cluster },
  );
  const migrated = await tds(made.env, 'migrate');
  expect(migrated, migrated.stderr).toMatchObject({ code: 0 });
  return made;
};
/** Differences of each replica by itself from the canonical chain. */
const differencesOfReplicas = async (): Promise<string[]> => {
  await replicas.drained();
  const found: string[] = [];
  for (const url of replicas.replicas) {
    const own = inspector(world.node, { ...world.env, CLICKHOUSE_URL: url });
    found.push(...(await own.tableDifferences()));
    await own.close();
  }
  return found;
};

beforeAll(async () => {
  replicas = await startLaggingReplicas({ lagMs: LAG_MS });
  world = await worldOn('lagging replicas');
  project = await world.start('project');
  await world.start('ingest');
  await world.settled();
});
afterAll(async () => {
  await world?.close();
  await replicas?.close();
});

test('projects and derives from all that was written, also across a reorg', async () => {
  expect(await world.differences()).toEqual([]);
  world.node.control({ command: 'reorg', depth: 8, length: 12 });
  await world.settled();
  expect(await world.differences()).toEqual([]);
  expect(await differencesOfReplicas()).toEqual([]);
  // The model did what it is for.
  expect(replicas.refusals.reads).toBeGreaterThan(0);
});

test.each([999, 242, 285, 286, 319])('waits while writes end with exception %i', async (code) => {
  replicas.failWrites(code);
  world.node.control({ command: 'advance', blocks: 2 });
  await new Promise((resolve) => setTimeout(resolve, 1500));
  expect(project.isRunning()).toBe(true);
  replicas.failWrites(null);
  await world.settled();
  expect(await world.tableDifferences()).toEqual([]);
});

test('rebuilds beside the writers, compares, and swaps', async () => {
  const rebuilding = tds(
    world.env,
    'rebuild',
    'account-ledger',
    'transfer-counts',
    'indexed-blocks',
    '--drop',
  );
  world.node.control({ command: 'reorg', depth: 4, length: 6 });
  const { code, stdout, stderr } = await rebuilding;
  expect(code, stderr).toBe(0);
  expect(stdout).toContain('Swapped');
  expect(stdout).not.toContain('DIFFERENT');
  expect((await servedBuilds(world.pool)).table('account_ledger_ranges')).toMatch(/_b2$/);
  await world.settled();
  expect(await world.differences()).toEqual([]);
  expect(await differencesOfReplicas()).toEqual([]);
});

test('verifies, and repairs every replica', async () => {
  const whole = await tds(world.env, 'verify');
  expect(whole, whole.stdout + whole.stderr).toMatchObject({ code: 0 });
  const { url, cluster: name } = replicas;
  const writer = createClickHouse(url, { application: 'test', cluster: { name, insertQuorum: 'auto' } });
  const transfers = (await servedBuilds(world.pool)).table('transfers');
  await writer.command(
    `INSERT INTO ${transfers} SELECT * REPLACE (amount + 1 AS amount, seq + 1 AS seq) FROM ${transfers} FINAL ORDER BY tx_hash LIMIT 3`,
  );
  await writer.close();
  const repaired = await tds(world.env, 'verify', '--repair');
  expect(repaired, repaired.stdout + repaired.stderr).toMatchObject({ code: 0 });
  expect(repaired.stdout).toMatch(/transfers/);
  expect(await world.differences()).toEqual([]);
  expect(await differencesOfReplicas()).toEqual([]);
});

test('derives wrong rows without a sequential quorum: the replicas of this test lag enough', async () => {
  await project.stop();
  project = await world.start('project', { CLICKHOUSE_CLUSTER: '' });
  // A derive step reads wrong rows if it comes to the late replica, which one reorg need not show.
  let differences = '';
  for (let reorg = 0; reorg < 10 && differences === ''; reorg += 1) {
    world.node.control({ command: 'reorg', depth: 6, length: 9 });
    await world.settled();
    await replicas.drained();
    differences = (await world.tableDifferences()).join('\n');
  }
  expect(differences).toMatch(/account_ledger_ranges|transfer_counts|indexed_block_ranges/);
});
