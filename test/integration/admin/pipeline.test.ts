import { afterAll, beforeAll, expect, test } from 'vitest';

import type { Heartbeat } from '../../../infra/health/heartbeat.ts';
import { chainProjections } from '../../../projections/index.ts';
import { servedSchema } from '../../../projections/served.ts';
import type { PipelineAnswer, PipelineStage } from '../../../schemas/api/admin/pipeline.ts';
import { adminWorld } from '../../support/admin-world.ts';
import type { AdminWorld } from '../../support/admin-world.ts';
import { eventually } from '../../support/service.ts';

/** The row of heights that admins see, while a test stops its parts. */

let world: AdminWorld;
let ingest: Heartbeat;
let project: Heartbeat;

beforeAll(async () => {
  world = await adminWorld();
  ingest = world.beat('ingest');
  project = world.beat('project');
  await world.startProjections();
  await world.publishBlocks(0, 3);
  await world.projected();
});
afterAll(() => world?.close());

const pipeline = async (): Promise<PipelineAnswer> => {
  const { status, json } = await world.get('/api/admin/pipeline/');
  expect(status).toBe(200);
  return json as PipelineAnswer;
};
const stage = ({ stages }: PipelineAnswer, name: string): PipelineStage => {
  const found = stages.find((one) => one.name === name);
  if (found === undefined) throw new Error(`no stage ${name}`);
  return found;
};
/** Until what the test has changed shows; on a machine of its own within 3 s. */
const shows = async (look: (seen: PipelineAnswer) => void): Promise<void> =>
  await eventually(async () => look(await pipeline()));
const chainNames = chainProjections.map(({ name }) => name).toSorted();

test('every stage has the height of the head while nothing is behind', async () => {
  await shows((seen) => {
    for (const name of ['node', 'log', 'api', ...chainNames]) {
      expect(stage(seen, name), name).toMatchObject({
        height: 3,
        lag_blocks: 0,
        lag_seconds: 0,
        state: 'ok',
      });
    }
  });
  const { stages, roles } = await pipeline();
  expect(stages.map(({ name }) => name).filter((name) => ['node', 'log', 'api'].includes(name))).toEqual([
    'node',
    'log',
    'api',
  ]);
  expect(stage({ stages } as PipelineAnswer, 'accounts')).toMatchObject({ height: null, lag_messages: 0 });
  expect(roles.find(({ name }) => name === 'project')).toMatchObject({
    state: 'working',
    processes: [{ process: 'project:1:00000001', state: 'live' }],
  });
});

test('the processes of the API show, and one that stops', async () => {
  const [stays, stops] = [world.beat('api'), world.beat('api')];
  const states = ({ roles }: PipelineAnswer) =>
    roles
      .find(({ name }) => name === 'api')
      ?.processes.map(({ state }) => state)
      .toSorted();
  await shows((seen) => expect(states(seen)).toEqual(['live', 'live']));
  await stops.stop();
  await shows((seen) => expect(states(seen)).toEqual(['live', 'stopped']));
  expect((await pipeline()).roles.find(({ name }) => name === 'api')).toMatchObject({ state: 'working' });
  await stays.stop();
  await shows((seen) => {
    expect(seen.roles.find(({ name }) => name === 'api')).toMatchObject({ state: 'missing' });
    expect(seen.alarms.map(({ name }) => name)).toContain('role:api');
  });
});

test('a projector that stops shows with its height and lag', async () => {
  await world.stopProjections();
  await world.publishBlocks(4, 6);
  await shows((seen) => {
    expect(stage(seen, 'log')).toMatchObject({ height: 6, lag_blocks: 0, state: 'ok' });
    for (const name of chainNames) {
      expect(stage(seen, name), name).toMatchObject({
        height: 3,
        lag_blocks: 3,
        lag_messages: 3,
        state: 'behind',
      });
    }
    expect(stage(seen, 'api')).toMatchObject({ height: 3, lag_blocks: 3, state: 'behind' });
  });
  // The time of block 3 is its own: 1,700,000,006.
  const { stages, updated_at: at } = await pipeline();
  const age = new Date(at).getTime() / 1000 - 1_700_000_006;
  for (const name of ['transfers', 'api'])
    expect(stage({ stages } as PipelineAnswer, name).lag_seconds, name).toBeCloseTo(age, 0);

  await world.api.pool.query(
    "UPDATE tds.role_processes SET stopped_at = now(), seen_at = now() - interval '6 seconds' WHERE role = 'project'",
  );
  await project.stop();
  await shows((seen) => {
    expect(stage(seen, 'transfers')).toMatchObject({ state: 'missing' });
    expect(seen.alarms).toContainEqual(
      expect.objectContaining({ kind: 'role', name: 'role:project', action: expect.stringContaining('tds') }),
    );
    expect(seen.roles.find(({ name }) => name === 'project')?.processes).toMatchObject([
      { state: 'stopped' },
    ]);
  });
});

test('a process without a heartbeat for 3 s is late, before its role counts as missing', async () => {
  await ingest.stop();
  await world.api.pool.query(
    "UPDATE tds.role_processes SET stopped_at = NULL, seen_at = now() - interval '4 seconds' WHERE role = 'ingest'",
  );
  await shows((seen) => {
    expect(seen.roles.find(({ name }) => name === 'ingest')).toMatchObject({
      state: 'working',
      processes: [{ state: 'late' }],
    });
    expect(stage(seen, 'log')).toMatchObject({ state: 'silent' });
  });
  ingest = world.beat('ingest');
  await shows((seen) => expect(stage(seen, 'log').state).toBe('ok'));
});

test('a projector that starts again catches up', async () => {
  project = world.beat('project');
  await world.startProjections();
  await world.projected();
  await shows((seen) => {
    for (const name of ['log', 'api', ...chainNames])
      expect(stage(seen, name), name).toMatchObject({ height: 6, lag_blocks: 0, state: 'ok' });
  });
});

test('the log counts as the head while what the ingester has announced is not read', async () => {
  await world.api.pool.query("UPDATE tds.chunks SET cursor = 9 WHERE name = 'live'");
  await shows((seen) => {
    expect(stage(seen, 'node')).toMatchObject({ height: 8, lag_blocks: 0 });
    expect(stage(seen, 'api')).toMatchObject({ height: 6, lag_blocks: 2, state: 'behind' });
  });
  await world.api.pool.query("UPDATE tds.chunks SET cursor = 7 WHERE name = 'live'");
});

test('the node shows for how long it has had no new block, and when that is too long', async () => {
  const { pool } = world.api;
  const schema = await servedSchema(pool, 'chain-status');
  await pool.query(`UPDATE ${schema}.status SET head_seen_at = $1`, [Date.now() - 90_000]);
  await shows((seen) => {
    const { state, detail } = stage(seen, 'node');
    expect(state).toBe('ok');
    expect(Number(/^no newer block for (\d+) s$/.exec(detail ?? '')?.[1])).toBeGreaterThanOrEqual(90);
  });
  const detail = 'the newest block of the node has been 6 for long';
  await pool.query("INSERT INTO tds.alarms (name, detail) VALUES ('node.head-stalled', $1)", [detail]);
  await shows((seen) => {
    expect(stage(seen, 'node')).toMatchObject({ state: 'stalled', detail });
    expect(seen.alarms).toContainEqual(
      expect.objectContaining({
        name: 'node.head-stalled',
        action: expect.stringContaining('STARKNET_RPC_URL'),
      }),
    );
  });
  await pool.query("DELETE FROM tds.alarms WHERE name = 'node.head-stalled'");
});

test('a halt and an alarm show with what to do', async () => {
  await world.api.pool.query(
    `INSERT INTO tds.projection_halts (projection, build, topic, partition, message_offset, reason)
     VALUES ('transfers', 1, 'chain.blocks', 0, 7, 'not JSON')`,
  );
  await world.api.pool.query(
    "INSERT INTO tds.alarms (name, detail) VALUES ('projection.outdated:tokens', 'version 1 is served')",
  );
  await shows((seen) => {
    expect(stage(seen, 'transfers')).toMatchObject({
      state: 'halted',
      detail: 'chain.blocks:0:7: not JSON',
    });
    expect(seen.alarms).toContainEqual({
      kind: 'halt',
      name: 'halt:transfers:chain.blocks:0',
      detail: 'transfers at chain.blocks:0:7: not JSON',
      since: expect.any(String),
      meaning: expect.any(String),
      action: expect.stringContaining('`tds quarantine skip chain.blocks:0:7`'),
    });
    expect(seen.alarms).toContainEqual(
      expect.objectContaining({
        name: 'projection.outdated:tokens',
        action: 'run the `tds rebuild NAME …` command in the detail',
      }),
    );
  });
});
