import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { checkReplica } from '../../../infra/health/replica-alarms.ts';
import { raisedAlarms } from '../../../infra/health/service-health.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { startClickHouseCluster } from '../../support/clickhouse-servers.ts';
import type { ClickHouseCluster, ClickHouseReplica } from '../../support/clickhouse-servers.ts';
import { inspector } from '../../support/faults/inspect.ts';
import type { Role } from '../../support/faults/role.ts';
import { faultWorld } from '../../support/faults/world.ts';
import type { FaultWorld } from '../../support/faults/world.ts';
import { isolatedPool } from '../../support/isolated-pool.ts';
import { eventually } from '../../support/service.ts';
import { tds } from '../../support/tds.ts';

/**
 * The service on three replicas of ClickHouse 25.8 behind a balancer, with the configuration of `deploy/clickhouse/`. Inserts
 * wait for two replicas, so the third one may lack rows; what reads what was written, reads all of it.
 */

const HEAD = 30;
let cluster: ClickHouseCluster;
let world: FaultWorld;
let project: Role;

/** Waits until a replica has all rows. */
const sync = async (one: ClickHouseReplica): Promise<void> => {
  const tables = await one.query('SHOW TABLES FORMAT TSV');
  for (const table of tables.trim().split('\n')) await one.query(`SYSTEM SYNC REPLICA ${table}`);
};
/** Differences of each replica by itself from the canonical chain. */
const differencesOfReplicas = async (): Promise<string[]> => {
  const found: string[] = [];
  for (const one of cluster.replicas) {
    await sync(one);
    const own = inspector(world.node, { ...world.env, CLICKHOUSE_URL: one.url });
    found.push(...(await own.tableDifferences()).map((difference) => `${one.name}: ${difference}`));
    await own.close();
  }
  return found;
};
const replica = (index: number): ClickHouseReplica => {
  const found = cluster.replicas[index];
  if (found === undefined) throw new Error(`no replica ${index}`);
  return found;
};

/** A client with the settings of a role. */
const clientOf = (url: string, timeoutMs?: number): ClickHouse =>
  createClickHouse(url, {
    application: 'test',
    cluster: { name: cluster.name, insertQuorum: 2 },
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
  });

const replicaAlarms = async (): Promise<string[]> =>
  (await raisedAlarms(world.pool)).map(({ name }) => name).filter((name) => name.startsWith('clickhouse.'));
/** The alarms about replicas after one of them was asked. */
const alarmsAfterAsking = async (clickhouse: ClickHouse): Promise<string[]> => {
  await checkReplica({ pool: world.pool, clickhouse, behindSeconds: 1 });
  return await replicaAlarms();
};

beforeAll(async () => {
  cluster = await startClickHouseCluster({ replicas: 3 });
  const { url, name } = cluster;
  world = await faultWorld(
    { seed: 'clickhouse replicas', initialHead: HEAD },
    { CLICKHOUSE_URL: url, CLICKHOUSE_CLUSTER: name },
  );
  const migrated = await tds(world.env, 'migrate');
  expect(migrated, migrated.stderr).toMatchObject({ code: 0 });
  project = await world.start('project');
  await world.start('ingest');
  await world.settled();
});
// Also after a failure, so that the other tests find replicas that fetch.
afterEach(async () => {
  await Promise.allSettled(cluster.replicas.map((one) => one.query('SYSTEM START FETCHES')));
});
afterAll(async () => {
  await world?.close();
  await cluster?.stop();
});

test('projects and derives from all that was written while a replica lacks it, also across a reorg', async () => {
  expect(await world.differences()).toEqual([]);
  await replica(2).query('SYSTEM STOP FETCHES');
  world.node.control({ command: 'reorg', depth: 8, length: 12 });
  await world.settled();
  expect(await world.differences()).toEqual([]);
  await replica(2).query('SYSTEM START FETCHES');
  expect(await differencesOfReplicas()).toEqual([]);
});

test('reads all acknowledged rows, also on a replica that has the newest ones without earlier ones', async () => {
  const balanced = clientOf(cluster.url);
  const whole = clientOf(replica(0).url);
  const lagging = clientOf(replica(2).url, 1500);
  const count = {
    name: 'test.count',
    sql: 'SELECT count() AS n FROM lagging',
    row: z.object({ n: z.coerce.number() }),
  };
  await balanced.ddl('CREATE TABLE lagging (n UInt8) ENGINE = MergeTree ORDER BY n');
  await replica(2).query('SYSTEM STOP FETCHES');
  await whole.command('INSERT INTO lagging VALUES (1)');
  await lagging.command('INSERT INTO lagging VALUES (2)');
  await expect(lagging.rows(count)).rejects.toThrow('ClickHouse did not answer within 1500 ms');
  const reads = await Promise.all(Array.from({ length: 9 }, async () => await balanced.rows(count)));
  expect(reads.flat()).toEqual(Array.from({ length: 9 }, () => ({ n: 2 })));
  expect(await alarmsAfterAsking(lagging)).toEqual(['clickhouse.replica-behind:clickhouse-3']);
  await replica(2).query('SYSTEM START FETCHES');
  expect(await lagging.rows(count)).toEqual([{ n: 2 }]);
  await eventually(async () => expect(await alarmsAfterAsking(lagging)).toEqual([]));
  await balanced.ddl('DROP TABLE lagging SYNC');
  for (const client of [balanced, whole, lagging]) await client.close();
});

test('raises an alarm, and no error, where the user may not read the state of the replicas', async () => {
  const balanced = clientOf(cluster.url);
  const withoutGrant = clientOf(cluster.url.replace('tds:writer', 'api:reader'));
  expect(await alarmsAfterAsking(withoutGrant)).toEqual(['clickhouse.replicas-hidden']);
  expect(await alarmsAfterAsking(balanced)).toEqual([]);
  for (const client of [balanced, withoutGrant]) await client.close();
});

test('says that a replica lacks a served table, and not that a table is not replicated yet', async () => {
  const pool = await isolatedPool();
  await replica(0).query('CREATE TABLE moved (n UInt8) ENGINE = MergeTree ORDER BY n');
  await pool.query(`UPDATE tds.served SET tables = '{"moved": "moved"}'`);
  const [having, lacking] = [clientOf(replica(0).url), clientOf(replica(1).url)];
  await checkReplica({ pool, clickhouse: having, behindSeconds: 60 });
  expect(await raisedAlarms(pool)).toEqual([]);
  await checkReplica({ pool, clickhouse: lacking, behindSeconds: 60 });
  expect(await raisedAlarms(pool)).toMatchObject([
    { name: 'clickhouse.replica-behind:clickhouse-2', detail: 'it lacks the table moved' },
  ]);
  await replica(0).query('DROP TABLE moved SYNC');
  for (const client of [having, lacking]) await client.close();
  await pool.end();
});

test('goes on while a replica is dead, with an alarm', async () => {
  await replica(0).kill();
  world.node.control({ command: 'reorg', depth: 4, length: 8 });
  await world.settled();
  expect(project.isRunning()).toBe(true);
  const alarms = ['clickhouse.replica-missing:clickhouse-1'];
  await eventually(async () => expect(await replicaAlarms()).toEqual(alarms), 60_000, 500);
  await replica(0).start();
  const balanced = clientOf(cluster.url);
  await eventually(async () => expect(await alarmsAfterAsking(balanced)).toEqual([]), 60_000, 500);
  await balanced.close();
});

test('removes a replica, and adds an empty one, by the steps of docs/operations.md', async () => {
  const [one, other] = [replica(1), replica(2)];
  const remaining = cluster.replicas.filter(({ name }) => name !== one.name);
  const balanced = clientOf(cluster.url);
  cluster.balance(remaining);
  cluster.list(remaining);
  await one.kill();
  one.empty();
  const drop = `SYSTEM DROP REPLICA '${one.name}' FROM DATABASE tds`;
  await eventually(async () => await other.query(drop), 60_000, 500);
  await balanced.ddl('CREATE TABLE meanwhile (n UInt8) ENGINE = MergeTree ORDER BY n');
  world.node.control({ command: 'advance', blocks: 2 });
  await world.settled();

  cluster.list(cluster.replicas);
  await one.start();
  const added = clientOf(one.url);
  expect(await alarmsAfterAsking(added)).toEqual([`clickhouse.replica-behind:${one.name}`]);
  const statements = `SELECT create_table_query FROM system.tables WHERE database = 'tds' FORMAT TSVRaw`;
  for (const sql of (await other.query(statements)).trim().split('\n')) await one.query(sql);
  await sync(one);
  await eventually(async () => expect(await alarmsAfterAsking(added)).toEqual([]));
  cluster.balance(cluster.replicas);
  await balanced.ddl('DROP TABLE meanwhile SYNC');
  for (const client of [added, balanced]) await client.close();
  expect(await one.query('EXISTS meanwhile')).toBe('0\n');
  world.node.control({ command: 'advance', blocks: 2 });
  await world.settled();
  expect(await differencesOfReplicas()).toEqual([]);
});

test('waits while Keeper is dead', async () => {
  await cluster.keeper.kill();
  world.node.control({ command: 'advance', blocks: 4 });
  await new Promise((resolve) => setTimeout(resolve, 3000));
  expect(project.isRunning()).toBe(true);
  await cluster.keeper.start();
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
  const writer = clientOf(cluster.url);
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
