import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import type { Publisher } from '../../../infra/kafka/client.ts';
import { startHeartbeat } from '../../../infra/health/heartbeat.ts';
import type { Heartbeat } from '../../../infra/health/heartbeat.ts';
import { serviceHealth } from '../../../infra/health/service-health.ts';
import { openBuild } from '../../../projections/engine/builds.ts';
import { quarantine } from '../../../projections/quarantine/projector.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** The state of the roles, from the stores alone: working, stalled or missing. */

const STALL_SECONDS = 2;
let world: ProjectionWorld;
let publisher: Publisher;
const heartbeats: Heartbeat[] = [];
const required = ['ingest', 'project', 'observe', 'dispatch', 'api'];

beforeAll(async () => {
  world = await projectionWorld();
  publisher = world.kafka.publisher();
});
afterAll(async () => {
  await Promise.all(heartbeats.map((heartbeat) => heartbeat.stop()));
  await publisher?.close();
  await world?.close();
});

const roles = async (stallSeconds = STALL_SECONDS) =>
  (await serviceHealth(world.pool, world.kafka, stallSeconds)).roles;
const state = async (name: string, stallSeconds = STALL_SECONDS) =>
  (await roles(stallSeconds)).find((role) => role.name === name);
const sql = async (text: string, values: unknown[] = []): Promise<void> =>
  void (await world.pool.query(text, values));
const aged = async (): Promise<void> =>
  await sql("UPDATE tds.role_processes SET started_at = now() - interval '1 hour'");

test('a role is missing without a process, and working with one', async () => {
  expect(await roles()).toEqual(
    required.map((name) => ({
      name,
      state: 'missing',
      since: null,
      detail: 'no process was ever seen',
    })),
  );
  for (const [i, role] of required.entries()) {
    heartbeats.push(startHeartbeat(world.pool, role, `here:${i}:00000001`, world.log));
  }
  for (const role of required) {
    await until(async () => (await state(role))?.state === 'working');
  }
  expect(await state('project')).toMatchObject({ detail: 'here:1:00000001' });
});

test('a role is missing once its process is silent or has stopped', async () => {
  const silent = startHeartbeat(world.pool, 'another', 'here:2', world.log);
  await until(async () => (await state('another'))?.state === 'working');
  // As after SIGSTOP, a hang or kill -9.
  await silent.stop();
  await sql(
    "UPDATE tds.role_processes SET stopped_at = NULL, seen_at = now() - interval '13 seconds' WHERE role = 'another'",
  );
  expect(await state('another')).toMatchObject({ state: 'missing', since: expect.any(String) });
  await sql("UPDATE tds.role_processes SET seen_at = now() WHERE role = 'another'");
  expect(await state('another')).toMatchObject({ state: 'working' });
  await sql("UPDATE tds.role_processes SET stopped_at = now() WHERE role = 'another'");
  expect(await state('another')).toMatchObject({ state: 'missing' });
});

describe('a projection', () => {
  test('stalls once its next message is old, however long it was idle before', async () => {
    await aged();
    const { build } = await openBuild(world.pool, world.clickhouse, quarantine);
    await sql(
      `INSERT INTO tds.checkpoints (consumer, build, topic, partition, topic_id, next_offset, updated_at)
       VALUES ('quarantine', $1, 'quarantine', 0, 'x', 0, now() - interval '1 hour')`,
      [build],
    );
    expect(await state('project')).toMatchObject({ state: 'working' });
    await publisher.publish(topics.quarantine, [
      { value: { type: 'quarantine.resolved', v: 1, id: 'x', resolution: 'skipped', resolved_at: 1 } },
    ]);
    // The lag has only just appeared.
    expect(await state('project', 60)).toMatchObject({ state: 'working' });
    await until(async () => (await state('project'))?.state === 'stalled');
    expect(await state('project')).toMatchObject({ detail: 'quarantine is stuck at quarantine:0:0' });
    // Behind, but its checkpoint moves.
    await sql('UPDATE tds.checkpoints SET updated_at = now()');
    expect(await state('project', 60)).toMatchObject({ state: 'working' });
    await sql("UPDATE tds.checkpoints SET next_offset = 1, updated_at = now() - interval '1 hour'");
    expect(await state('project')).toMatchObject({ state: 'working' });
  });

  test('does not stall within STALL_SECONDS of the start of its process', async () => {
    await sql('UPDATE tds.checkpoints SET next_offset = 0');
    expect(await state('project')).toMatchObject({ state: 'stalled' });
    await sql("UPDATE tds.role_processes SET started_at = now() WHERE role = 'project'");
    expect(await state('project', 30)).toMatchObject({ state: 'working' });
    await aged();
    await sql('UPDATE tds.checkpoints SET next_offset = 1');
  });
});

test('an ingester stalls by its own alarm, and while no open chunk has a writer', async () => {
  await sql(
    `INSERT INTO tds.chunks (name, range_start, cursor, final_height, holder, lease_until, updated_at)
     VALUES ('live', 0, 0, -1, 'somebody', now() + interval '1 hour', now() - interval '1 hour')`,
  );
  expect(await state('ingest')).toMatchObject({ state: 'working' });
  await sql("INSERT INTO tds.alarms (name, detail) VALUES ('ingest.stalled:live', 'no progress for 60 s')");
  expect(await state('ingest')).toMatchObject({ state: 'stalled', detail: 'live: no progress for 60 s' });
  await sql('DELETE FROM tds.alarms');
  await sql("UPDATE tds.chunks SET lease_until = now() - interval '1 minute'");
  expect(await state('ingest')).toMatchObject({
    state: 'stalled',
    detail: 'no writer holds a lease on any of 1 open chunks',
  });
  await sql("UPDATE tds.chunks SET status = 'finished'");
  expect(await state('ingest')).toMatchObject({ state: 'working' });
});

test('an observer stalls while no process claims due tasks, not while it is only behind', async () => {
  const attempt = async (subject: string, dueIn: number, doneAt: number | null = null): Promise<void> =>
    await sql(
      `INSERT INTO tds.observer_attempts (observer, subject, task, facts, next_at, done_at)
       VALUES ('tokens', $1, '{}', '', CASE WHEN $3::bigint IS NULL THEN $2::bigint END, $3)`,
      [subject, Date.now() + dueIn, doneAt],
    );
  await attempt('old', -600_000);
  expect(await state('observe')).toMatchObject({
    state: 'stalled',
    detail: 'tokens: due tasks are not processed',
  });
  // Another task is claimed.
  await attempt('claimed', 50_000);
  expect(await state('observe')).toMatchObject({ state: 'working' });
  await sql("DELETE FROM tds.observer_attempts WHERE subject = 'claimed'");
  await attempt('done', 0, Date.now());
  expect(await state('observe', 60)).toMatchObject({ state: 'working' });
});

test('the dispatcher stalls while a matcher is stuck at an old message, or due deliveries are not sent', async () => {
  await aged();
  expect(await state('dispatch')).toMatchObject({ state: 'working' });
  await publisher.publish(topics.prices, [
    {
      key: '0x1',
      value: {
        type: 'price.unchanged',
        v: 1,
        token: toFelt(1n),
        source: '',
        reason: '',
        observed_at: 1,
        requested_at: 1,
      },
    },
  ]);
  const { partition } = (await world.kafka.offsets(topics.prices)).find(({ high }) => high > 0)!;
  await sql(
    `INSERT INTO tds.checkpoints (consumer, topic, partition, topic_id, next_offset, updated_at)
     VALUES ('dispatch-prices', 'prices', $1, 'x', 0, now() - interval '1 hour')`,
    [partition],
  );
  await until(async () => (await state('dispatch'))?.state === 'stalled');
  expect((await state('dispatch'))?.detail).toBe(`prices is stuck at prices:${partition}:0`);
  const halt = 'offset 0 waits: tokens is halted at tokens:0:7: not JSON';
  await sql('INSERT INTO tds.alarms (name, detail) VALUES ($1, $2)', [
    `webhooks.waiting:prices:prices:${partition}`,
    halt,
  ]);
  expect((await state('dispatch'))?.detail).toBe(`prices is stuck at prices:${partition}:0: ${halt}`);
  await sql('DELETE FROM tds.alarms');
  await sql("UPDATE tds.checkpoints SET next_offset = 1 WHERE consumer = 'dispatch-prices'");
  expect(await state('dispatch')).toMatchObject({ state: 'working' });
  await sql('INSERT INTO tds.webhook_endpoints (webhook_id, due_at) VALUES (1, $1)', [Date.now() - 600_000]);
  expect(await state('dispatch')).toMatchObject({
    state: 'stalled',
    detail: 'due deliveries are not sent',
  });
  await sql('UPDATE tds.webhook_endpoints SET last_delivery_at = $1', [Date.now()]);
  expect(await state('dispatch', 60)).toMatchObject({ state: 'working' });
});
