import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';

import { systemClock } from '../../../infra/clock.ts';
import { listBuilds } from '../../../projections/engine/builds.ts';
import { rebuild } from '../../../projections/engine/rebuild/rebuild.ts';
import { runPostgresProjection } from '../../../projections/engine/run/postgres-runner.ts';
import type { Projection } from '../../../projections/define.ts';
import { projections } from '../../../projections/index.ts';
import { lastUses } from '../../../projections/key-use/queries.ts';
import { keyUse } from '../../../projections/key-use/projector.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { usage } from '../../../projections/usage/projector.ts';
import { usedHours } from '../../../projections/usage/queries.ts';
import type { UsageMessage } from '../../../schemas/messages/usage.ts';
import { unmovedBalances } from '../../../projections/unmoved-balances/projector.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { atEnd, projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';
import { tds } from '../../support/tds.ts';

/** Rebuilds of `usage` and `key-use` after the beginning of their topic was deleted. */

const HOUR_MS = 3_600_000;
const FIRST_HOUR = 480_000;
let world: ProjectionWorld;
const stops: (() => Promise<void>)[] = [];
beforeAll(async () => {
  world = await projectionWorld();
});
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
  await world.stopRuns();
});
afterAll(async () => await world.close());

/** Two counts an hour for two keys: four messages an hour. */
const counted = (first: number, hours: number): UsageMessage[] =>
  Array.from({ length: hours * 4 }, (_, index): UsageMessage => {
    const hour = first + Math.floor(index / 4);
    return {
      type: 'usage.counted',
      v: 1,
      key_id: 1 + (index % 2),
      hour: hour * 3600,
      calls: 10 + index,
      successful: 5 + index,
      last_used_at: hour * HOUR_MS + index,
      counted_at: hour * HOUR_MS + index,
    };
  });

const publish = async (messages: readonly UsageMessage[]): Promise<void> => {
  const publisher = world.kafka.publisher();
  await publisher.publish(
    topics.usage,
    messages.map((value) => ({ key: String(value.key_id), value })),
  );
  await publisher.close();
};

/** What the API shows of the two keys. */
const shown = async () => {
  const served = await servedBuilds(world.pool);
  const hours = [];
  for (const keyId of [1, 2]) {
    hours.push(await usedHours(world.clickhouse, served, { keyId, from: 0, to: 1e15 }));
  }
  return { hours, lastUses: await lastUses(world.pool, served.schema('key-use'), [1, 2]) };
};

/** What the messages come to, computed from the messages alone. */
const expectedOf = (messages: readonly UsageMessage[]) => {
  const hours = [1, 2].map((keyId) => {
    const own = Map.groupBy(
      messages.filter(({ key_id }) => key_id === keyId),
      ({ hour }) => hour * 1000,
    );
    return [...own].map(([hour, counts]) => ({
      hour,
      calls: counts.reduce((sum, { calls }) => sum + calls, 0),
      successful: counts.reduce((sum, { successful }) => sum + successful, 0),
    }));
  });
  const last = (keyId: number): number =>
    Math.max(...messages.filter(({ key_id }) => key_id === keyId).map(({ last_used_at: at }) => at));
  return {
    hours,
    lastUses: new Map([
      [1, last(1)],
      [2, last(2)],
    ]),
  };
};

const settled = async (): Promise<void> =>
  await until(async () => await atEnd(world.kafka, world.pool, topics.usage, ['usage', 'key-use']));

const rebuildAll = async (wanted: readonly Projection[]) =>
  await rebuild({ ...world, clock: systemClock, signal: new AbortController().signal }, wanted, {
    swap: true,
    onProgress: () => {},
  });

test('a rebuild keeps the rows of messages that retention has deleted', async () => {
  const messages = counted(FIRST_HOUR, 6);
  await publish(messages);
  const run = await world.run({ projections: [usage], groupId: 'project-usage' });
  const fold = await runPostgresProjection({ ...world, projection: keyUse, groupId: 'project-key-use' });
  stops.push(
    () => run.stop(),
    () => fold.stop(),
  );
  await settled();
  expect(await shown()).toEqual(expectedOf(messages));

  // The deletion ends in the middle of an hour.
  await world.kafka.deleteBefore(topics.usage, 0, 10);
  const [place] = await world.kafka.offsets(topics.usage);
  expect(place).toMatchObject({ low: 10, high: 24 });
  const report = await rebuildAll([usage, keyUse]);
  expect(report.isSwapped).toBe(true);
  expect(report.tables.filter(({ differing }) => differing.length > 0)).toEqual([]);
  expect(await shown()).toEqual(expectedOf(messages));

  // The runners follow the new builds.
  const more = counted(FIRST_HOUR + 5, 2);
  await publish(more);
  await settled();
  expect(await shown()).toEqual(expectedOf([...messages, ...more]));
  for (const stop of stops.splice(0)) await stop();

  // Another version, as after an upgrade, when every message is gone.
  await world.kafka.deleteBefore(topics.usage, 0, 32);
  await rebuildAll([{ ...usage, version: 2 } as Projection, { ...keyUse, version: 2 } as Projection]);
  expect(await shown()).toEqual(expectedOf([...messages, ...more]));
  expect((await listBuilds(world.pool, 'usage')).map(({ version, state }) => `${version} ${state}`)).toEqual([
    '1 retired',
    '1 retired',
    '2 serving',
  ]);
});

test('a rebuild after the loss of tables has the rows of the messages that are left', async () => {
  const deleted = (await world.kafka.offsets(topics.usage))[0]?.high ?? 0;
  const messages = counted(FIRST_HOUR + 100, 2);
  await publish(messages);
  await world.kafka.deleteBefore(topics.usage, 0, deleted);
  const usage2: typeof usage = { ...usage, version: 2 };
  const keyUse2: typeof keyUse = { ...keyUse, version: 2 };
  for (const { name } of [usage2, keyUse2]) {
    const builds = await listBuilds(world.pool, name);
    const names = Object.values(builds.find(({ state }) => state === 'serving')?.names ?? {});
    for (const one of names) {
      if (name === 'usage') await world.clickhouse.command(`DROP TABLE ${one} SYNC`);
      else await world.pool.query(`DROP SCHEMA ${one} CASCADE`);
    }
  }
  const report = await rebuildAll([usage2, keyUse2]);
  expect(report.isSwapped).toBe(true);
  expect(report.tables.map(({ table, isLost }) => [table, isLost])).toEqual([
    ['usage_counts', true],
    ['usage_hourly', true],
  ]);
  const run = await world.run({ projections: [usage2], groupId: 'project-usage' });
  const fold = await runPostgresProjection({ ...world, projection: keyUse2, groupId: 'project-key-use' });
  stops.push(
    () => run.stop(),
    () => fold.stop(),
  );
  await settled();
  expect(await shown()).toEqual(expectedOf(messages));
});

test('a projection whose rows expire goes on after messages that retention has deleted unread', async () => {
  const publisher = world.kafka.publisher();
  const observe = async (token: bigint): Promise<unknown> =>
    await publisher.publish(topics.unmovedBalances, [
      {
        key: 'one',
        value: {
          type: 'balance.observed',
          v: 1,
          account: toFelt(1n),
          token: toFelt(token),
          block: 1,
          block_hash: toFelt(2n),
          balance: '0',
          observed_at: 1,
          requested_at: 1,
          l1_height: null,
        },
      },
    ]);
  const start = async (): Promise<void> => {
    const run = await runPostgresProjection({ ...world, projection: unmovedBalances, groupId: 'unmoved' });
    stops.push(() => run.stop());
    await until(
      async () => await atEnd(world.kafka, world.pool, topics.unmovedBalances, ['unmoved-balances']),
    );
  };
  await observe(1n);
  await start();
  for (const stop of stops.splice(0)) await stop();
  await observe(2n);
  await observe(3n);
  const written = (await world.kafka.offsets(topics.unmovedBalances)).find(({ high }) => high > 0);
  await world.kafka.deleteBefore(topics.unmovedBalances, written?.partition ?? 0, 2);
  const migrated = await tds(world.env, 'migrate');
  expect([migrated.code, migrated.stdout]).toEqual([0, expect.not.stringContaining('unmoved-balances')]);
  await start();
  await publisher.close();
  const schema = (await servedBuilds(world.pool)).schema('unmoved-balances');
  const { rows } = await world.pool.query(`SELECT token FROM ${schema}.answers ORDER BY token`);
  expect(rows).toEqual([{ token: toFelt(1n) }, { token: toFelt(3n) }]);
});

test('every projection of a topic with finite retention carries rows over', () => {
  const finite = projections.filter(({ topic }) => topic.retention !== 'forever');
  expect(finite.map(({ name }) => name)).toEqual(['usage', 'unmoved-balances', 'key-use']);
  for (const projection of finite) expect(projection).toHaveProperty('carryOver');
});
