import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, expect, test } from 'vitest';

import { examples } from '../../api/http/examples.ts';
import type { Examples } from '../../api/http/examples.ts';
import type { HistoryAnswer } from '../../schemas/api/admin/history.ts';
import type { OperationAnswer } from '../../schemas/api/admin/operations.ts';
import type { PipelineAnswer, PipelineStage } from '../../schemas/api/admin/pipeline.ts';
import type { ProjectionsAnswer } from '../../schemas/api/admin/projections.ts';
import { callEverything } from '../support/examples/calls.ts';
import { createRecorder, writeExamples } from '../support/examples/recorder.ts';
import { eventually } from '../support/service.ts';
import { createSimulatedFeed } from '../support/simulated-feed.ts';
import { createSimulatedGateway } from '../support/simulated-gateway.ts';
import { simulatedService } from '../support/simulated-service.ts';
import type { SimulatedService } from '../support/simulated-service.ts';

/** The routes of admins, and at last every operation, against the whole service, whose roles a test stops. */

const BLOCK_SECONDS = 120;

let simulated: SimulatedService;
let session = '';
let gatewayUrl = '';
const files = mkdtempSync(join(tmpdir(), 'tds-files-'));
const closers: (() => unknown)[] = [() => rmSync(files, { recursive: true, force: true })];

beforeAll(async () => {
  const [feed, gateway] = [await createSimulatedFeed(), await createSimulatedGateway()];
  closers.push(
    () => feed.close(),
    () => gateway.close(),
  );
  gatewayUrl = gateway.url;
  simulated = await simulatedService(
    {
      seed: 'admin',
      manual: false,
      intervalMs: 2000,
      // Long ago enough for figures by hour.
      genesisTime: Math.floor(Date.now() / 1000) - 150 * BLOCK_SECONDS,
      blockSeconds: BLOCK_SECONDS,
      initialHead: 30,
      malformed: 0.2,
      l1Height: 10,
    },
    {
      settings: {
        BACKFILL_CHUNK_BLOCKS: '10',
        EXPORT_FILES: files,
        PRICE_FEED_URL: feed.url,
        TOKEN_LIST_URL: `${feed.url}/v1/starknet/tokens`,
        IPFS_GATEWAY_URL: gateway.url,
        NFT_ALLOW_NETWORKS: '127.0.0.0/8',
        WEBHOOK_ALLOW_NETWORKS: '127.0.0.0/8',
      },
    },
  );
  closers.push(() => simulated.close());
  const { username, password } = simulated.service.demo;
  const { json } = await call<{ token: string }>('POST', '/api/users/auth/login/', { username, password });
  session = json.token;
});
afterAll(async () => {
  for (const close of closers.toReversed()) await close();
});

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
  });

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
  });
});

test('the roles record the history of lag and throughput', async () => {
  await eventually(async () => {
    const { json } = await call<HistoryAnswer>('GET', '/api/admin/history/');
    expect(json.results.length).toBeGreaterThanOrEqual(3);
    const times = json.results.map(({ time }) => new Date(time).getTime());
    expect(times.every((time) => time % 5000 === 0)).toBe(true);
    expect(json.results.some(({ transfers_per_second: rate }) => rate !== null && rate > 0)).toBe(true);
    expect((await pipeline()).throughput?.blocks_per_second).toBeGreaterThan(0);
  });
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
  });
});

test('every operation answers as described, and all answers have an example', async () => {
  const recorder = await createRecorder(simulated.service);
  recorder.hide(gatewayUrl, 'https://ipfs.io');
  await callEverything(simulated, recorder, files);
  if (process.env['EXAMPLES'] === 'write') writeExamples(recorder.recorded);
  else expect(namesOf(recorder.recorded), 'run `npm run examples`').toEqual(namesOf(examples));
});

/** Operations with a body, and operations, statuses, media types and errors with an example. */
const namesOf = ({ answers, bodies, errors }: Examples): string[] =>
  [
    ...Object.keys(bodies),
    ...Object.entries(answers).flatMap(([id, statuses]) =>
      Object.entries(statuses).flatMap(([status, media]) =>
        Object.keys(media).map((type) => `${id} ${status} ${type}`),
      ),
    ),
    ...Object.entries(errors).flatMap(([status, named]) =>
      Object.keys(named).map((name) => `${status} ${name}`),
    ),
  ].toSorted();
