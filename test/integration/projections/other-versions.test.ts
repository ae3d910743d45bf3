import { Registry } from 'prom-client';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { runServed } from '../../../projections/engine/run/run-served.ts';
import { systemClock } from '../../../infra/clock.ts';
import { Releasers } from '../../../infra/lifecycle.ts';
import { raisedAlarms } from '../../../infra/health/service-health.ts';
import { createAlarms } from '../../../infra/health/alarms.ts';
import { accountLedger } from '../../../projections/account-ledger/projector.ts';
import { accountFeed } from '../../../projections/account-feed/projector.ts';
import type { BlockProjection } from '../../../projections/define.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { rebuild } from '../../../projections/engine/rebuild/rebuild.ts';
import { runClickHouseProjections } from '../../../projections/engine/run/clickhouse-runner.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { indexedBlocks } from '../../../projections/indexed-blocks/projector.ts';
import { tokenHolders } from '../../../projections/token-holders/projector.ts';
import { transfers } from '../../../projections/transfers/projector.ts';
import { accepted, busyBlock } from '../../support/chain-messages.ts';
import { projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** Programs of two versions of one projection, beside each other: the other projections go on in both. */

let own: ProjectionWorld;
beforeAll(async () => {
  own = await projectionWorld();
});
afterAll(async () => await own.close());

const newer: BlockProjection = {
  ...transfers,
  version: transfers.version + 1,
  ddl: transfers.ddl.replace('is_deleted UInt8', "is_deleted UInt8,\n  note String DEFAULT ''"),
};
const blocks = (first: number, count: number) =>
  Array.from({ length: count }, (_, index) => accepted(busyBlock(first + index, 4), first + index + 1));

/** A program that runs these projections; fails the test when the run fails. */
async function program(name: string, projections: readonly BlockProjection[]) {
  const failures: unknown[] = [];
  const releasers = new Releasers((_, error) => void failures.push(error));
  await runServed(
    projections,
    (together) => runClickHouseProjections({ ...own, projections: [...together], groupId: name }),
    {
      ...own,
      releasers,
      alarms: createAlarms(own.pool),
      fail: (error) => void failures.push(error),
      pollMs: 100,
    },
  );
  return { failures, stop: () => releasers.releaseAll() };
}

async function rebuildAndSwap(projection: BlockProjection): Promise<void> {
  const metrics = createProjectionMetrics(new Registry());
  const deps = { ...own, metrics, clock: systemClock, signal: new AbortController().signal };
  await rebuild(deps, [projection], { swap: true, onProgress: () => {} });
}

/** Visible rows of the served table. */
async function rowsOf(table: string): Promise<number> {
  const served = (await servedBuilds(own.pool)).table(table);
  const [row] = await own.select(`SELECT count() AS n FROM ${served} FINAL`);
  return Number(row?.['n']);
}

test('a projection of another version stands still until it is rebuilt, and stops no other', async () => {
  const perBlock = 8;
  await own.publish(blocks(0, 6));
  const old = await program('old', [transfers, accountFeed]);
  await until(async () => (await rowsOf('transfers')) === 6 * perBlock);
  await old.stop();

  const recent = await program('new', [newer, accountFeed]);
  const feedBefore = await rowsOf('account_feed');
  await own.publish(blocks(6, 2));
  await until(async () => (await rowsOf('account_feed')) > feedBefore);
  expect(await rowsOf('transfers')).toBe(6 * perBlock);
  expect(await raisedAlarms(own.pool)).toEqual([
    expect.objectContaining({
      name: 'projection.outdated:transfers',
      detail: expect.stringContaining('tds rebuild transfers'),
    }),
  ]);

  // An older program beside it, started again, does not know that anything is outdated.
  const beside = await program('beside', [transfers]);
  await until(async () => (await raisedAlarms(own.pool)).length === 1);
  await beside.stop();

  await recent.stop();
  expect(await raisedAlarms(own.pool)).toEqual([]);
  const again = await program('new', [newer, accountFeed]);
  await until(async () => (await raisedAlarms(own.pool)).length === 1);

  await rebuildAndSwap(newer);
  await own.publish(blocks(8, 2));
  await until(async () => (await rowsOf('transfers')) === 10 * perBlock);
  await until(async () => (await raisedAlarms(own.pool)).length === 0);
  await again.stop();

  // The older program, started again by mistake: it leaves the newer table alone, and raises no alarm.
  const older = await program('old', [transfers, accountFeed]);
  const feedNow = await rowsOf('account_feed');
  await own.publish(blocks(10, 1));
  await until(async () => (await rowsOf('account_feed')) > feedNow);
  expect(await rowsOf('transfers')).toBe(10 * perBlock);
  expect(await raisedAlarms(own.pool)).toEqual([]);
  await older.stop();
  const programs = [old, recent, beside, again, older];
  expect(programs.flatMap(({ failures }) => failures)).toEqual([]);
});

test('a program whose projection is swapped to another version while it runs goes on with the others', async () => {
  const running = await program('running', [newer, accountFeed]);
  await until(async () => (await rowsOf('transfers')) === 11 * 8);
  const newest = { ...newer, version: newer.version + 1, ddl: newer.ddl.replace('note', 'remark') };
  await rebuildAndSwap(newest);
  const feed = await rowsOf('account_feed');
  await own.publish(blocks(11, 2));
  await until(async () => (await rowsOf('account_feed')) > feed);
  expect(await rowsOf('transfers')).toBe(11 * 8);
  await running.stop();
  expect(running.failures).toEqual([]);
});

test('nothing says that a block is indexed while a projection of another version stands still', async () => {
  await rebuildAndSwap(indexedBlocks);
  const indexed = await rowsOf('indexed_blocks');
  expect(indexed).toBeLessThan(15);
  const outdated = { ...transfers, version: 100 };
  const running = await program('held', [outdated, accountFeed, indexedBlocks]);
  await own.publish(blocks(13, 2));
  // Checkpoints move after everything that was read together is written.
  await own.settled(['account-feed']);
  expect(await rowsOf('indexed_blocks')).toBe(indexed);
  await rebuildAndSwap(outdated);
  await until(async () => (await rowsOf('indexed_blocks')) === 15);
  expect(await rowsOf('transfers')).toBe(15 * 8);
  await running.stop();
  expect(running.failures).toEqual([]);
});

test('nothing says that a block is indexed that is not marked for a deferred read model of another version', async () => {
  await rebuildAndSwap(accountLedger);
  await rebuildAndSwap(tokenHolders);
  const older = { ...tokenHolders, version: tokenHolders.version - 1 };
  const running = await program('unmarking', [older, accountFeed, indexedBlocks]);
  const [feed, indexed] = [await rowsOf('account_feed'), await rowsOf('indexed_blocks')];
  await own.publish(blocks(15, 2));
  await until(async () => (await rowsOf('account_feed')) > feed);
  // Waits for what it writes.
  await running.stop();
  expect(await rowsOf('indexed_blocks')).toBe(indexed);
  expect(running.failures).toEqual([]);
});
