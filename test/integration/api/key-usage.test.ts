import { afterAll, beforeAll, expect, it } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { systemClock } from '../../../infra/clock.ts';
import { createLogger } from '../../../infra/log.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { rebuild } from '../../../projections/engine/rebuild/rebuild.ts';
import { runClickHouseProjections } from '../../../projections/engine/run/clickhouse-runner.ts';
import type { ProjectionRun } from '../../../projections/engine/run/lifetime.ts';
import { runPostgresProjection } from '../../../projections/engine/run/postgres-runner.ts';
import { keyUse } from '../../../projections/key-use/projector.ts';
import { usage } from '../../../projections/usage/projector.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { topics } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { until } from '../../support/projection-world.ts';

/** From calls with a key to what its owner sees of them. */

const HOUR = 3_600_000;
let world: ApiWorld;
let clickhouse: ClickHouse;
const runs: ProjectionRun[] = [];
let alice: { token: string };
let bob: { token: string };

beforeAll(async () => {
  world = await apiWorld();
  clickhouse = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  const { kafka, pool } = world;
  const log = createLogger('test', 'silent');
  const common = { kafka, pool, log, metrics: createProjectionMetrics(createMetrics('test')) };
  runs.push(
    await runClickHouseProjections({ ...common, clickhouse, projections: [usage], groupId: 'usage' }),
    await runPostgresProjection({ ...common, projection: keyUse, groupId: 'key-use' }),
  );
  [alice, bob] = [await world.makeUser('alice'), await world.makeUser('bob')];
});
afterAll(async () => {
  for (const run of runs) await run.stop();
  await clickhouse.close();
  await world.close();
});

async function makeKey(name: string): Promise<{ id: number; key: string }> {
  const { json } = await world.call('POST', '/api/users/auth/create-api-key/', {
    token: alice.token,
    json: { name },
  });
  return json;
}
const usageOf = (id: number | string, query = '', { token } = alice): Promise<Answer> =>
  world.call('GET', `/api/users/auth/api-keys/${id}/usage/${query}`, { token });
const lastUse = async (id: number): Promise<string | null> => {
  const { json } = await world.call('GET', '/api/users/auth/api-keys/', { token: alice.token });
  return json.find((one: { id: number }) => one.id === id).last_used_at;
};

it('calls are counted by hour and outcome, and the last one is shown', async () => {
  const [{ id, key }, idle] = [await makeKey('busy'), await makeKey('idle')];
  const before = Date.now();
  const headers = { 'api-key': key };
  for (let i = 0; i < 5; i += 1) await world.call('GET', '/api/tokens/', { headers });
  await world.call('GET', '/api/tokens/0xnothing/', { headers });
  const after = Date.now();
  // Across an hour's end the calls are in two.
  await until(async () => (await usageOf(id)).json.total_calls === 6);
  const { json } = await usageOf(id);
  expect(
    json.data.reduce((sum: number, hour: { successful_calls: number }) => sum + hour.successful_calls, 0),
  ).toBe(5);
  for (const { hour } of json.data) {
    expect(Date.parse(hour) % HOUR).toBe(0);
    expect(Date.parse(hour)).toBeGreaterThan(before - HOUR);
  }
  await until(async () => (await lastUse(id)) !== null);
  expect(Date.parse((await lastUse(id)) ?? '')).toBeGreaterThanOrEqual(before);
  expect(Date.parse((await lastUse(id)) ?? '')).toBeLessThanOrEqual(after);

  expect((await usageOf(idle.id)).json).toMatchObject({
    success: true,
    id: idle.id,
    total_calls: 0,
    data: [],
  });
  expect(await lastUse(idle.id)).toBeNull();
  // What was asked of the last day is not in a day of long ago.
  const old = await usageOf(id, '?end_time=2020-01-02');
  expect(old.json).toMatchObject({ start_time: '2020-01-01T00:00:00.000Z', total_calls: 0 });
});

it('counts of several processes add up despite duplicate and late messages, also after a rebuild', async () => {
  const { id } = await makeKey('many');
  const hour = Math.floor(Date.now() / HOUR) * 3600 - 7200;
  const value = (more: { hour: number; calls: number; successful: number; last_used_at: number }) => ({
    key: String(id),
    value: { type: 'usage.counted' as const, v: 1 as const, key_id: id, counted_at: Date.now(), ...more },
  });
  const publisher = world.kafka.publisher();
  await publisher.publish(topics.usage, [
    value({ hour, calls: 3, successful: 1, last_used_at: hour * 1000 + 5 }),
    value({ hour: hour - 3600, calls: 2, successful: 2, last_used_at: hour * 1000 - 5 }),
    value({ hour, calls: 4, successful: 4, last_used_at: hour * 1000 + 4 }),
  ]);
  await publisher.close();
  const expected = {
    total_calls: 9,
    data: [
      { hour: new Date(hour * 1000 - HOUR).toISOString(), calls: 2, successful_calls: 2 },
      { hour: new Date(hour * 1000).toISOString(), calls: 7, successful_calls: 5 },
    ],
  };
  await until(async () => (await usageOf(id)).json.total_calls === 9);
  expect((await usageOf(id)).json).toMatchObject(expected);
  await until(async () => (await lastUse(id)) !== null);
  expect(await lastUse(id)).toBe(new Date(hour * 1000 + 5).toISOString());

  const { signal } = new AbortController();
  const report = await rebuild(
    {
      kafka: world.kafka,
      pool: world.pool,
      clickhouse,
      clock: systemClock,
      log: createLogger('test', 'silent'),
      metrics: createProjectionMetrics(createMetrics('rebuild')),
      signal,
    },
    [usage, keyUse],
    { swap: true, onProgress: () => {} },
  );
  expect(report.tables.flatMap(({ differing }) => differing)).toEqual([]);
  expect((await usageOf(id)).json).toMatchObject(expected);
});

it('every hour of a key that was used for years is in one answer', async () => {
  const { id } = await makeKey('used for years');
  const served = await servedBuilds(world.pool);
  const hours = 10_001;
  const first = Date.parse('2022-01-01') / HOUR;
  await clickhouse.command(
    `INSERT INTO ${served.table('usage_hourly')} SELECT ${id}, ${first} + number, 1, 1, 1, 0 FROM numbers(${hours})`,
  );
  const { status, json } = await usageOf(id, '?start_time=2020-01-01');
  expect([status, json.total_calls, json.data?.length]).toEqual([200, hours, hours]);
});

it('usage is not visible to other users', async () => {
  const { id } = await makeKey('mine');
  expect((await usageOf(id, '', bob)).status).toBe(404);
  expect((await usageOf(999_999)).status).toBe(404);
  expect((await usageOf('mine')).status).toBe(404);
  expect((await world.call('GET', `/api/users/auth/api-keys/${id}/usage/`)).status).toBe(401);
  expect((await usageOf(id, '?start_time=2024-01-02&end_time=2024-01-01')).json.errors).toHaveProperty(
    'start_time',
  );
});
