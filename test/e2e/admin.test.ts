import { afterAll, beforeAll, expect, test } from 'vitest';

import type { HistoryAnswer } from '../../schemas/api/admin/history.ts';
import type { OperationAnswer } from '../../schemas/api/admin/operations.ts';
import type { PipelineAnswer, PipelineStage } from '../../schemas/api/admin/pipeline.ts';
import type { ProjectionsAnswer } from '../../schemas/api/admin/projections.ts';
import { eventually } from '../support/service.ts';
import { simulatedService } from '../support/simulated-service.ts';
import type { SimulatedService } from '../support/simulated-service.ts';

/** The routes of admins against the whole service, whose roles a test stops. */

let simulated: SimulatedService;
let session = '';

beforeAll(async () => {
  simulated = await simulatedService(
    { seed: 'admin', manual: false, initialHead: 30, malformed: 0.2, l1Height: 10 },
    { settings: { BACKFILL_CHUNK_BLOCKS: '10' } },
  );
  const { username, password } = simulated.service.demo;
  const { json } = await call<{ token: string }>('POST', '/api/users/auth/login/', { username, password });
  session = json.token;
});
afterAll(() => simulated?.close());

async function call<T>(method: string, path: string, body?: unknown): Promise<{ status: number; json: T }> {
  const response = await fetch(simulated.service.baseUrl + path, {
    method,
    headers: {
      ...(session === '' ? {} : { authorization: `Bearer ${session}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, json: (await response.json()) as T };
}
const pipeline = async (): Promise<PipelineAnswer> => {
  const { status, json } = await call<PipelineAnswer>('GET', '/api/admin/pipeline/');
  expect(status).toBe(200);
  return json;
};
const stage = ({ stages }: PipelineAnswer, name: string): PipelineStage | undefined =>
  stages.find((one) => one.name === name);
const ended = async (id: string): Promise<OperationAnswer> =>
  await eventually(async () => {
    const { json } = await call<OperationAnswer>('GET', `/api/admin/operations/${id}/`);
    expect(['done', 'failed']).toContain(json.state);
    return json;
  }, 60_000);

test('every role and every stage of the running service shows', async () => {
  await eventually(async () => {
    const seen = await pipeline();
    expect(seen.roles.map(({ name }) => name).toSorted()).toEqual([
      'api',
      'dispatch',
      'ingest',
      'observe',
      'project',
    ]);
    for (const { processes, name } of seen.roles)
      expect(processes.filter(({ state }) => state === 'live').length, name).toBe(1);
    expect(stage(seen, 'node')?.height).toBeGreaterThanOrEqual(30);
    for (const name of ['log', 'transfers', 'indexed-blocks', 'api'])
      expect(stage(seen, name)?.lag_blocks, name).toBeLessThanOrEqual(1);
  }, 60_000);
});

test('the roles record the history of lag and throughput', async () => {
  await eventually(async () => {
    const { json } = await call<HistoryAnswer>('GET', '/api/admin/history/');
    expect(json.results.length).toBeGreaterThanOrEqual(3);
    const times = json.results.map(({ time }) => new Date(time).getTime());
    expect(times.every((time) => time % 5000 === 0)).toBe(true);
    expect(json.results.some(({ transfers_per_second: rate }) => rate !== null && rate > 0)).toBe(true);
    expect((await pipeline()).throughput?.blocks_per_second).toBeGreaterThan(0);
  }, 60_000);
});

test('a projector that is stopped by a signal shows with the next block, and is well when it continues', async () => {
  const pid = simulated.service.pids()['project'] ?? 0;
  process.kill(pid, 'SIGSTOP');
  try {
    const before = stage(await pipeline(), 'log')?.height ?? 0;
    await eventually(async () => {
      const seen = await pipeline();
      // One block may have been read before the signal.
      expect(stage(seen, 'log')?.height).toBeGreaterThan(before + 1);
      const transfers = stage(seen, 'transfers');
      expect(transfers?.lag_blocks).toBeGreaterThanOrEqual(1);
      expect(['behind', 'silent', 'missing']).toContain(transfers?.state);
    });
    await eventually(async () => {
      const { alarms } = await pipeline();
      expect(alarms.map(({ name }) => name)).toContain('role:project');
    });
  } finally {
    process.kill(pid, 'SIGCONT');
  }
  await eventually(async () => {
    const seen = await pipeline();
    expect(stage(seen, 'transfers')?.lag_blocks).toBeLessThanOrEqual(1);
    expect(seen.alarms.map(({ name }) => name)).not.toContain('role:project');
  });
});

test('a quarantined event of the chain is skipped by the role that projects', async () => {
  const found = await eventually(async () => {
    const { json } = await call<{ results: { id: string }[] }>('GET', '/api/admin/quarantine/?kind=event');
    expect(json.results.length).toBeGreaterThan(0);
    return json.results[0]?.id ?? '';
  });
  const path = `/api/admin/quarantine/${found}/`;
  const { status, json } = await call<OperationAnswer>('POST', `${path}skip/`);
  expect([200, 202]).toContain(status);
  expect(await ended(json.id)).toMatchObject({ state: 'done', subject: found });
  await eventually(async () => expect((await call('GET', path)).json).toMatchObject({ state: 'skipped' }));
});

test('a rebuild that an admin starts is run beside the role that projects, and swapped', async () => {
  const { status, json } = await call<OperationAnswer>(
    'POST',
    '/api/admin/projections/tx-index/rebuild/',
    {},
  );
  expect(status, JSON.stringify(json)).toBe(202);
  expect(await ended(json.id)).toMatchObject({ state: 'done', detail: expect.stringContaining('Swapped') });
  const { json: shown } = await call<ProjectionsAnswer>('GET', '/api/admin/projections/');
  expect(shown.results.find(({ name }) => name === 'tx-index')).toMatchObject({
    rebuild: { state: 'finished', differences: 0, is_swapped: true },
    builds: [{ state: 'retired' }, { state: 'serving' }],
  });
});

test('the blocks that the service samples by itself are counted', async () => {
  await eventually(async () => {
    const { json } = await call<{ sampling: { blocks: number; differences: number } | null }>(
      'GET',
      '/api/admin/verification/',
    );
    expect(json.sampling).toMatchObject({ differences: 0 });
    expect(json.sampling?.blocks).toBeGreaterThan(0);
  }, 60_000);
});
